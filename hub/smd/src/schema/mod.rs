//! What an object is made of, as far as merging needs to know: what is a list of named elements, a set, a leaf.
//!
//! A [`Schema`] is an arena of types; a [`TypeRef`] is a handle on one of them. The built-in types are one arena, read
//! once from a table of facts; every custom resource has its own, made of its OpenAPI schema.

mod structural;
mod table;

use std::sync::{Arc, OnceLock};

use serde_json::Value;

/// The place of a type in its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeId(pub(crate) u32);

/// In every schema: anything goes; maps are merged by key, lists and scalars replaced.
pub(crate) const DEDUCED: TypeId = TypeId(0);

/// A handle on one type: cheap to clone.
#[derive(Clone, Debug)]
pub struct TypeRef {
    pub(crate) schema: Arc<Schema>,
    pub(crate) id: TypeId,
}

impl TypeRef {
    /// The schema of a built-in kind, or none if this version of Kubernetes has no such kind.
    pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Self> {
        let tables = builtin_tables();
        let id = tables.root(group, version, kind)?;
        Some(Self { schema: Arc::clone(&tables.schema), id })
    }

    /// Knows nothing: maps are merged by key, lists replaced. For a kind of which there is no schema.
    pub fn deduced() -> Self {
        static SCHEMA: OnceLock<Arc<Schema>> = OnceLock::new();
        let schema = SCHEMA.get_or_init(|| Arc::new(Schema::new()));
        Self { schema: Arc::clone(schema), id: DEDUCED }
    }

    /// The schema of a custom resource from the `openAPIV3Schema` of one of its versions.
    pub fn from_structural(schema: &Value) -> Self {
        structural::convert(schema)
    }

    pub(crate) fn is_deduced(&self) -> bool {
        self.id == DEDUCED
    }
}

/// [`TypeRef::builtin`].
pub fn builtin(group: &str, version: &str, kind: &str) -> Option<TypeRef> {
    TypeRef::builtin(group, version, kind)
}

/// [`TypeRef::from_structural`].
pub fn from_structural(schema: &Value) -> TypeRef {
    TypeRef::from_structural(schema)
}

/// [`TypeRef::deduced`].
pub fn deduced() -> TypeRef {
    TypeRef::deduced()
}

fn builtin_tables() -> &'static table::Tables {
    static TABLES: OnceLock<table::Tables> = OnceLock::new();
    TABLES.get_or_init(table::parse)
}

/// An arena of types that refer to each other.
#[derive(Debug)]
pub(crate) struct Schema {
    types: Vec<Type>,
}

/// What values a type allows; more than one of the three for types that are not told apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Type {
    pub(crate) scalar: Option<ScalarType>,
    pub(crate) list: Option<ListType>,
    pub(crate) map: Option<MapType>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarType {
    Numeric,
    String,
    Boolean,
    Untyped,
}

#[derive(Clone, Debug)]
pub(crate) struct ListType {
    pub(crate) element: TypeId,
    pub(crate) kind: ListKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ListKind {
    /// One value as a whole.
    Atomic,
    /// Each scalar is owned by itself.
    Set,
    /// Each object is known by these fields.
    Map(Box<[Arc<str>]>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MapType {
    pub(crate) atomic: bool,
    /// Sorted by name.
    pub(crate) fields: Box<[Field]>,
    /// What undeclared keys hold; none: there may be none.
    pub(crate) element: Option<TypeId>,
}

/// A declared field of a struct.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Shared by all fields of that name, and by the paths made of it.
    pub(crate) name: Arc<str>,
    pub(crate) ty: TypeId,
    pub(crate) absent: Absent,
    /// What a list-map key stands for when it is left out.
    pub(crate) default: Option<Box<Value>>,
    /// How a strategic merge patch treats it.
    pub(crate) patch: Option<&'static PatchMeta>,
}

/// What Go's encoder writes for a field that is not set. Kubernetes compares objects in that form, so a Deployment's
/// `spec` is there before anyone sets it and is not a change when it comes, while a label map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    Nothing,
    Null,
    EmptyObject,
    EmptyString,
    Zero,
    ZeroQuantity,
    False,
}

/// Strategic merge: the strategy of a field and the key of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PatchMeta {
    pub(crate) merge: bool,
    pub(crate) replace: bool,
    pub(crate) key: &'static str,
}

/// The form of value that a type allows for a given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form<'a> {
    Map(&'a MapType),
    Scalar(ScalarType),
    List(&'a ListType),
}

impl PartialEq for MapType {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl PartialEq for ListType {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for MapType {}
impl Eq for ListType {}

impl Schema {
    fn new() -> Self {
        Self {
            types: vec![Type {
                scalar: Some(ScalarType::Untyped),
                list: Some(ListType { element: DEDUCED, kind: ListKind::Atomic }),
                map: Some(MapType { element: Some(DEDUCED), ..MapType::default() }),
            }],
        }
    }

    fn add(&mut self, ty: Type) -> TypeId {
        self.types.push(ty);
        TypeId(u32::try_from(self.types.len() - 1).expect("invariant: a schema has fewer than 2^32 types"))
    }

    pub(crate) fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// Whether a type is [`DEDUCED`].
    pub(crate) fn is_deduced(&self, id: TypeId) -> bool {
        id == DEDUCED
    }

    /// A declared field of a struct type.
    pub(crate) fn field(&self, id: TypeId, name: &str) -> Option<&Field> {
        self.get(id).map.as_ref().and_then(|m| m.field(name))
    }

    pub(crate) fn map_element(&self, id: TypeId) -> Option<TypeId> {
        self.get(id).map.as_ref().and_then(|m| m.element)
    }

    pub(crate) fn list_element(&self, id: TypeId) -> Option<TypeId> {
        self.get(id).list.as_ref().map(|l| l.element)
    }

    /// The form in which a value of this type is to be read; null and what the type does not allow take its first.
    pub(crate) fn form(&self, id: TypeId, value: &Value) -> Form<'_> {
        let ty = self.get(id);
        match value {
            Value::Object(_) if ty.map.is_some() => {}
            Value::Array(_) => {
                if let Some(list) = &ty.list {
                    return Form::List(list);
                }
            }
            Value::String(_) | Value::Number(_) | Value::Bool(_) => {
                if let Some(scalar) = ty.scalar {
                    return Form::Scalar(scalar);
                }
            }
            _ => {}
        }
        match ty {
            Type { map: Some(map), .. } => Form::Map(map),
            Type { scalar: Some(scalar), .. } => Form::Scalar(*scalar),
            Type { list: Some(list), .. } => Form::List(list),
            _ => Form::Scalar(ScalarType::Untyped),
        }
    }
}

impl MapType {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|f| (*f.name).cmp(name)).ok().map(|i| &self.fields[i])
    }

    /// The type of what stands under a key. What is not declared is taken as it comes: stored objects may hold what a
    /// schema of another day allowed.
    pub(crate) fn child(&self, name: &str) -> TypeId {
        self.field(name).map(|f| f.ty).or(self.element).unwrap_or(DEDUCED)
    }
}

#[cfg(test)]
mod tests;
