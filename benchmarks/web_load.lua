-- The load of docs/web.md on a running `vramcast web`: questions that differ, for wrk (Debian's package of that name):
--   wrk -t1 -c8 -d30s --latency -s benchmarks/web_load.lua http://127.0.0.1:8765           six models on six cards
--   FITS=1 wrk -t1 -c8 -d20s --latency -s benchmarks/web_load.lua http://127.0.0.1:8765    those that fit
local fits = os.getenv("FITS")
local models={"Qwen/Qwen2.5-7B-Instruct","meta-llama/Llama-3.1-8B-Instruct","openai/gpt-oss-20b","Qwen/Qwen3-30B-A3B","google/gemma-3-12b-it","Qwen/Qwen2.5-72B-Instruct"}
local gpus={"4090","H100","L40S","A100-80G","3090","H200"}
if fits then
  models={"Qwen/Qwen2.5-7B-Instruct","meta-llama/Llama-3.1-8B-Instruct","Qwen/Qwen3-8B"}
  gpus={"H100","H200","A100-80G","B200"}
end
request=function()
  local r=math.random(10)
  if r<=6 then return wrk.format("GET","/api/serve?model="..models[math.random(#models)].."&gpu="..gpus[math.random(#gpus)].."&context="..(1024*(2+math.random(28))).."&concurrency="..math.random(16)) end
  if r<=8 then return wrk.format("GET","/answer/serve?model="..models[math.random(#models)].."&gpu="..gpus[math.random(#gpus)].."&context="..(1024*(2+math.random(28))).."&prompt=1000&output=300") end
  if r==9 then return wrk.format("GET","/api/train?model=meta-llama/Llama-3.1-8B&gpu=H100&method=lora&seq="..(512*math.random(16))) end
  return wrk.format("GET","/api/gpus?name=4090")
end
