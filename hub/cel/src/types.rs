//! Types as the checker sees them.

use std::{fmt, sync::Arc};

use crate::decl::{Decl, Shape};

/// A type.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    /// Anything; checked when it is met.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Self>),
    Map(Arc<Self>, Arc<Self>),
    /// An object with named fields.
    Object(Arc<Decl>),
    Optional(Arc<Self>),
    /// The type of types.
    Meta,
    /// A type of a library.
    Opaque(&'static str),
    /// To be found out.
    Param(usize),
}

impl Type {
    /// The type of the values of a declaration.
    pub(crate) fn of(decl: &Arc<Decl>) -> Self {
        match &decl.shape {
            Shape::IntOrString | Shape::Any => Self::Dyn,
            Shape::Bool => Self::Bool,
            Shape::Int => Self::Int,
            Shape::Double => Self::Double,
            Shape::Text => Self::Text,
            Shape::Bytes => Self::Bytes,
            Shape::Duration => Self::Duration,
            Shape::Timestamp => Self::Timestamp,
            Shape::List(items, _) => Self::list(Self::of(items)),
            Shape::Map(values) => Self::map(Self::Text, Self::of(values)),
            Shape::Object(_) => Self::Object(Arc::clone(decl)),
        }
    }

    pub(crate) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub(crate) fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Param(_) => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::Text => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("google.protobuf.Duration"),
            Self::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Object(_) => f.write_str("object"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Meta => f.write_str("type"),
            Self::Opaque(name) => f.write_str(name),
        }
    }
}

/// What has been found out of the parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings(Vec<Option<Type>>);

impl Bindings {
    /// A new parameter.
    pub(crate) fn fresh(&mut self) -> Type {
        self.0.push(None);
        Type::Param(self.0.len() - 1)
    }

    /// A type with everything in it that is known by now; what is not stays a parameter.
    pub(crate) fn resolve(&self, of: &Type) -> Type {
        match of {
            Type::Param(index) => match self.0.get(*index).and_then(Option::as_ref) {
                Some(bound) => self.resolve(bound),
                None => of.clone(),
            },
            Type::List(item) => Type::list(self.resolve(item)),
            Type::Map(key, value) => Type::map(self.resolve(key), self.resolve(value)),
            Type::Optional(item) => Type::optional(self.resolve(item)),
            other => other.clone(),
        }
    }

    /// As [`resolve`](Self::resolve), with `dyn` for what never was found out.
    pub(crate) fn settle(&self, of: &Type) -> Type {
        match self.resolve(of) {
            Type::Param(_) => Type::Dyn,
            Type::List(item) => Type::list(self.settle(&item)),
            Type::Map(key, value) => Type::map(self.settle(&key), self.settle(&value)),
            Type::Optional(item) => Type::optional(self.settle(&item)),
            other => other,
        }
    }

    /// Whether a value of type `from` may stand where `to` is wanted. Learns parameters on the way.
    pub(crate) fn assign(&mut self, to: &Type, from: &Type) -> bool {
        let (to, from) = (self.resolve(to), self.resolve(from));
        match (&to, &from) {
            (Type::Param(a), Type::Param(b)) if a == b => true,
            (Type::Param(index), other) | (other, Type::Param(index)) => {
                self.0[*index] = Some(other.clone());
                true
            }
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.assign(a, b),
            (Type::Map(ka, va), Type::Map(kb, vb)) => self.assign(ka, kb) && self.assign(va, vb),
            (Type::Object(a), Type::Object(b)) => {
                Arc::ptr_eq(a, b) || a.fields().is_some() && a.same_shape(b)
            }
            (Type::Opaque(a), Type::Opaque(b)) => a == b,
            (
                Type::Null,
                Type::Object(_) | Type::Duration | Type::Timestamp | Type::Opaque(_) | Type::Optional(_),
            )
            | (
                Type::Object(_) | Type::Duration | Type::Timestamp | Type::Opaque(_) | Type::Optional(_),
                Type::Null,
            ) => true,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}
