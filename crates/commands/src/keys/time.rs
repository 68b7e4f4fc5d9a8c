//! Units and forms of times, shared by the commands that set and read a time to live.

/// Variants stand in the order of their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

/// Variants stand in the order of their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// A length of time from now.
    Span,
    /// A Unix time.
    Deadline,
}

pub(super) const UNITS: [Unit; 2] = [Unit::Seconds, Unit::Milliseconds];
pub(super) const FORMS: [Form; 2] = [Form::Span, Form::Deadline];
