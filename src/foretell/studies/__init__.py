"""Many questions at once: sweeps, sensitivity, scaling, procurement, codesign."""
