//! Adversarial schedules, played by hand.
