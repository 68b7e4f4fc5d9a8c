//! Bytes of messages and stored fields, from a list of fields.

use bytes::Bytes;
use types::wire::put_varint;
use types::{Access, Command, Incarnation, Key, Malformed, NodeId, Reader, Reply, Shard, Wire};

/// A field of a message. Numbers are varints, lists begin with their length.
pub trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);

    /// # Errors
    /// If these are no such bytes.
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Entries of a list at most.
const LIST_MAX: u64 = 1 << 16;

impl Field for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, *self);
    }

    fn take(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
        reader.varint()
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
        match reader.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
}

impl Field for Shard {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Shard, Malformed> {
        reader.u8().map(Shard)
    }
}

impl Field for NodeId {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.0));
    }

    fn take(reader: &mut Reader<'_>) -> Result<NodeId, Malformed> {
        u16::try_from(reader.varint()?).map(NodeId).map_err(|_| Malformed)
    }
}

impl Field for Incarnation {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.0));
    }

    fn take(reader: &mut Reader<'_>) -> Result<Incarnation, Malformed> {
        let number = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let incarnation = Incarnation(number);
        if incarnation <= Incarnation::MAX { Ok(incarnation) } else { Err(Malformed) }
    }
}

/// Without the parts that stay at a node: see [`Command::stays`].
impl Field for Command {
    fn put(&self, out: &mut Vec<u8>) {
        self.access.encode(out);
        self.body.encode(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Command, Malformed> {
        let access = Access::decode(reader)?;
        Ok(Command::new(access, Bytes::decode(reader)?))
    }
}

impl<F: Field> Field for Option<F> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(field) = self {
            field.put(out);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Option<F>, Malformed> {
        if bool::take(reader)? { F::take(reader).map(Some) } else { Ok(None) }
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<(A, B), Malformed> {
        Ok((A::take(reader)?, B::take(reader)?))
    }
}

impl<F: Field> Field for Vec<F> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        self.iter().for_each(|field| field.put(out));
    }

    fn take(reader: &mut Reader<'_>) -> Result<Vec<F>, Malformed> {
        let len = reader.varint()?;
        if len > LIST_MAX {
            return Err(Malformed);
        }
        (0..len).map(|_| F::take(reader)).collect()
    }
}

/// Fields with bytes of their own.
macro_rules! wire_fields {
    ($($type:ty),*) => {$(
        impl $crate::toolkit::fields::Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                types::Wire::encode(self, out);
            }

            fn take(reader: &mut types::Reader<'_>) -> Result<$type, types::Malformed> {
                types::Wire::decode(reader)
            }
        }
    )*};
}

/// A structure whose bytes are those of its fields.
macro_rules! wire_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }

        impl types::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                $($crate::toolkit::fields::Field::put(&self.$field, out);)*
            }

            fn decode(reader: &mut types::Reader<'_>) -> Result<$name, types::Malformed> {
                Ok($name { $($field: $crate::toolkit::fields::Field::take(reader)?,)* })
            }
        }

        $crate::toolkit::fields::wire_fields!($name);
    };
}

/// An enumeration whose bytes are a number, then the fields of the variant.
macro_rules! wire_enum {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $number:literal: $variant:ident { $($field:ident: $type:ty),* $(,)? },)*
    }) => {
        $(#[$meta])*
        pub enum $name { $($(#[$doc])* $variant { $($field: $type),* },)* }

        impl types::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant { $($field),* } => {
                        out.push($number);
                        $($crate::toolkit::fields::Field::put($field, out);)*
                    })*
                }
            }

            fn decode(reader: &mut types::Reader<'_>) -> Result<$name, types::Malformed> {
                Ok(match reader.u8()? {
                    $($number => $name::$variant {
                        $($field: $crate::toolkit::fields::Field::take(reader)?),*
                    },)*
                    _ => return Err(types::Malformed),
                })
            }
        }

        $crate::toolkit::fields::wire_fields!($name);
    };
}

pub(crate) use {wire_enum, wire_fields, wire_struct};

wire_fields!(Bytes, Key, Reply);

#[cfg(test)]
mod tests {
    use super::*;

    wire_struct! {
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Pair {
            pub left: u64,
            pub right: Option<bool>,
        }
    }

    wire_enum! {
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Sample {
            1: Empty {},
            4: Many { pairs: Vec<Pair>, key: Key },
            9: One { node: NodeId, shard: Shard, at: (Incarnation, Bytes) },
        }
    }

    #[test]
    fn fields_come_back_from_their_bytes() {
        let pair = |left, right| Pair { left, right };
        for sample in [
            Sample::Empty {},
            Sample::Many {
                pairs: vec![pair(1, None), pair(1 << 40, Some(true))],
                key: Key::new(b"k"),
            },
            Sample::One {
                node: NodeId(7),
                shard: Shard(255),
                at: (Incarnation(3), Bytes::from_static(b"x")),
            },
        ] {
            let bytes = sample.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(Sample::from_bytes(&bytes[..len]), Err(Malformed));
            }
            assert_eq!(Sample::from_bytes(&bytes), Ok(sample));
        }
    }

    #[test]
    fn wrong_bytes_are_refused() {
        assert_eq!(Sample::from_bytes(&[2]), Err(Malformed), "no such variant");
        assert_eq!(Pair::from_bytes(&[1, 2]), Err(Malformed), "no such option");
        let mut many = Vec::new();
        put_varint(&mut many, LIST_MAX + 1);
        assert!(Vec::<u64>::take(&mut Reader::new(&many)).is_err());
    }
}
