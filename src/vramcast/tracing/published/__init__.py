"""What is published under a name, as far as a trace needs it: configs, the shape of tokenizers, the columns of data sets."""
