//! Load generators and measurements.
