"""What a log says: terms at the peak, the layers' costs, the run as a picture or in other viewers' forms."""
