//! PyTorch Flight Recorder dumps.
