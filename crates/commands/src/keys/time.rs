//! Units and forms of times, shared by the commands that set and read a time to live.

/// Variants stand in the order of their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
}

/// Variants stand in the order of their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// A length of time from now.
    Span,
    /// A Unix time.
    Deadline,
}

pub(crate) const UNITS: [Unit; 2] = [Unit::Seconds, Unit::Milliseconds];
pub(crate) const FORMS: [Form; 2] = [Form::Span, Form::Deadline];
