//! Deliberate mistakes (mutants), switched on one at a time to show that tests notice them.
//!
//! A crate declares its own with [`mutations!`](crate::mutations).
//! They are compiled only under `cfg(test)` of that crate or under its feature `mutations`.

/// Defines `Mutation`, with one variant and name per mistake, and its switch: `set` and `is`.
#[macro_export]
macro_rules! mutations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A rule that can be left out.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Mutation {
            $($(#[$doc])* $variant,)*
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &[Mutation] = &[$(Mutation::$variant,)*];

            /// The name on the command line and in tables.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Mutation::$variant => $name,)* }
            }

            #[must_use]
            pub fn by_name(name: &str) -> Option<Mutation> {
                Mutation::ALL.iter().copied().find(|mutation| mutation.name() == name)
            }
        }

        #[cfg(any(test, feature = "mutations"))]
        mod switch {
            use std::cell::Cell;

            use super::Mutation;

            thread_local! {
                static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
            }

            /// Switches one mutation on for this thread, or all off.
            pub fn set(mutation: Option<Mutation>) {
                ACTIVE.set(mutation);
            }

            /// True while this rule is left out.
            #[must_use]
            pub fn is(mutation: Mutation) -> bool {
                ACTIVE.get() == Some(mutation)
            }
        }

        #[cfg(not(any(test, feature = "mutations")))]
        mod switch {
            use super::Mutation;

            /// Mutations are not compiled in: always false.
            #[must_use]
            #[inline(always)]
            pub fn is(_mutation: Mutation) -> bool {
                false
            }
        }

        pub use switch::*;
    };
}
