//! Reads `data/types.txt`, the built-in types.
//!
//! ```text
//! @apps <tab> v1 <tab> Deployment <tab> 20          a served kind and the number of its type
//! !core/v1.ObjectReference                          a struct type, numbered in order; "!" if it is one value as a whole
//! <tab> ports <tab> [(port,protocol)#7 <tab> - <tab> default <tab> merge:port
//!       field       type                     absent  JSON        strategic merge
//! ```
//!
//! Types: `s` string, `n` number, `b` boolean, `u` any scalar, `*` anything, `#7` the struct of that number (`!#7` and
//! `~#7`: here as one value, here not), `{T` a map of T (`!{T` as one value), `[!T` an atomic list, `[=T` a set,
//! `[(a,b)T` a list of objects known by a and b. Absent, what Go writes for the zero value: `-` nothing, `n` null,
//! `o` {}, `s` "", `i` 0, `q` "0", `b` false. Strategic merge: `strategy[,strategy]:key`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{
    Absent, DEDUCED, Field, ListKind, ListType, MapType, PatchMeta, ScalarType, Schema, Type, TypeId,
};

static TEXT: &str = include_str!("../../data/types.txt");

pub(super) struct Tables {
    pub(super) schema: Arc<Schema>,
    /// Sorted by group, version, kind.
    roots: Vec<(&'static str, &'static str, &'static str, TypeId)>,
}

impl Tables {
    pub(super) fn root(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        let i = self.roots.binary_search_by(|r| (r.0, r.1, r.2).cmp(&(group, version, kind))).ok()?;
        Some(self.roots[i].3)
    }
}

/// The table is part of the program; a test reads all of it, so what is malformed shows there and is skipped here.
pub(super) fn parse() -> Tables {
    let mut reader = Reader { schema: Schema::new(), inline: BTreeMap::new(), names: BTreeMap::new() };
    let (mut roots, mut structs): (Vec<_>, Vec<(&'static str, Vec<&'static str>)>) = (Vec::new(), Vec::new());
    for line in TEXT.lines() {
        if let Some(root) = line.strip_prefix('@') {
            let mut parts = root.split('\t');
            if let (Some(group), Some(version), Some(kind), Some(Ok(number))) =
                (parts.next(), parts.next(), parts.next(), parts.next().map(str::parse))
            {
                roots.push((group, version, kind, struct_id(number)));
            }
        } else if let Some(row) = line.strip_prefix('\t') {
            if let Some((_, rows)) = structs.last_mut() {
                rows.push(row);
            }
        } else if !line.starts_with('#') {
            structs.push((line, Vec::new()));
        }
    }
    // Structs first, so that their numbers are their places; inline types follow as fields name them.
    for _ in &structs {
        reader.schema.add(Type::default());
    }
    for (i, (name, rows)) in structs.iter().enumerate() {
        let fields = rows.iter().filter_map(|row| reader.field(row)).collect();
        let map = MapType { atomic: name.starts_with('!'), fields, ..MapType::default() };
        let place = struct_id(u32::try_from(i).unwrap_or(0)).0 as usize;
        reader.schema.types[place].map = Some(map);
    }
    for (id, base, atomic) in reader.overrides() {
        let fields = reader.schema.get(base).map.as_ref().map(|m| m.fields.clone()).unwrap_or_default();
        reader.schema.types[id.0 as usize].map = Some(MapType { atomic, fields, element: None });
    }
    reader.schema.types.shrink_to_fit();
    roots.sort_unstable();
    Tables { schema: Arc::new(reader.schema), roots }
}

fn struct_id(number: u32) -> TypeId {
    TypeId(number + 1)
}

struct Reader {
    schema: Schema,
    /// Types without a name, by how they are written.
    inline: BTreeMap<&'static str, TypeId>,
    /// Every field name, once.
    names: BTreeMap<&'static str, Arc<str>>,
}

impl Reader {
    fn field(&mut self, row: &'static str) -> Option<Field> {
        let mut columns = row.split('\t');
        let (name, ty, absent) = (columns.next()?, columns.next()?, columns.next()?);
        let default: Option<Value> = columns.next().and_then(|d| serde_json::from_str(d).ok());
        let patch = columns.next().and_then(patch_meta);
        let absent = match absent {
            "n" => Absent::Null,
            "o" => Absent::EmptyObject,
            "s" => Absent::EmptyString,
            "i" => Absent::Zero,
            "q" => Absent::ZeroQuantity,
            "b" => Absent::False,
            _ => Absent::Nothing,
        };
        // OpenAPI gives what Go always writes its zero value as a default, so a key left out is that.
        let default = default.or(match absent {
            Absent::EmptyString => Some(Value::from("")),
            Absent::Zero => Some(Value::from(0)),
            Absent::False => Some(Value::from(false)),
            _ => None,
        });
        Some(Field {
            name: Arc::clone(self.names.entry(name).or_insert_with(|| Arc::from(name))),
            ty: self.ty(ty),
            absent,
            default: default.map(Box::new),
            patch,
        })
    }

    fn ty(&mut self, text: &'static str) -> TypeId {
        if text == "*" {
            return DEDUCED;
        }
        if let Some(number) = text.strip_prefix('#') {
            return struct_id(number.parse().unwrap_or(0));
        }
        if let Some(id) = self.inline.get(text) {
            return *id;
        }
        let ty = match text {
            "s" => scalar(ScalarType::String),
            "n" => scalar(ScalarType::Numeric),
            "b" => scalar(ScalarType::Boolean),
            "u" => scalar(ScalarType::Untyped),
            _ => self.compound(text),
        };
        let id = self.schema.add(ty);
        self.inline.insert(text, id);
        id
    }

    fn compound(&mut self, text: &'static str) -> Type {
        let list = |element, kind| Type { list: Some(ListType { element, kind }), ..Type::default() };
        let map = |element, atomic| Type {
            map: Some(MapType { atomic, element: Some(element), ..MapType::default() }),
            ..Type::default()
        };
        if let Some(element) = text.strip_prefix("[!") {
            list(self.ty(element), ListKind::Atomic)
        } else if let Some(element) = text.strip_prefix("[=") {
            list(self.ty(element), ListKind::Set)
        } else if let Some((keys, element)) = text.strip_prefix("[(").and_then(|t| t.split_once(')')) {
            list(self.ty(element), ListKind::Map(keys.split(',').map(Arc::from).collect()))
        } else if let Some(element) = text.strip_prefix("!{") {
            map(self.ty(element), true)
        } else if let Some(element) = text.strip_prefix('{') {
            map(self.ty(element), false)
        } else {
            Type::default() // `!#7` and `~#7`: filled in by `overrides` once all structs are read
        }
    }

    /// The types that are a struct but for being one value or not: (type, struct, one value).
    fn overrides(&self) -> Vec<(TypeId, TypeId, bool)> {
        let of = |(text, id): (&&'static str, &TypeId)| {
            let (atomic, number) = match text.strip_prefix("!#") {
                Some(number) => (true, number),
                None => (false, text.strip_prefix("~#")?),
            };
            Some((*id, struct_id(number.parse().ok()?), atomic))
        };
        self.inline.iter().filter_map(of).collect()
    }
}

fn scalar(scalar: ScalarType) -> Type {
    Type { scalar: Some(scalar), ..Type::default() }
}

/// The strategies that exist, so that fields can share them.
fn patch_meta(text: &'static str) -> Option<&'static PatchMeta> {
    static METAS: std::sync::OnceLock<Vec<(&'static str, PatchMeta)>> = std::sync::OnceLock::new();
    let metas = METAS.get_or_init(|| {
        let texts = TEXT.lines().filter_map(|l| l.strip_prefix('\t')?.split('\t').nth(4));
        let mut metas: Vec<_> = texts
            .filter_map(|text| {
                let (strategies, key) = text.split_once(':')?;
                let has = |wanted| strategies.split(',').any(|s| s == wanted);
                Some((text, PatchMeta { merge: has("merge"), replace: has("replace"), key }))
            })
            .collect();
        metas.sort_by_key(|m| m.0);
        metas.dedup_by_key(|m| m.0);
        metas
    });
    metas.binary_search_by_key(&text, |m| m.0).ok().map(|i| &metas[i].1)
}
