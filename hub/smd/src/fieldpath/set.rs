//! A set of paths, as a trie with sorted nodes, and its algebra.

use std::cmp::Ordering;

use karmada_meta::effort;

use super::{Path, PathElement};
use crate::schema::{Schema, TypeId};

/// A set of paths. The empty path (the whole object) is never in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Sorted by element; each is a member or has children.
    pub(crate) nodes: Vec<Node>,
}

/// One element of a [`Set`] with all that begins with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub element: PathElement,
    /// The path that ends here is in the set.
    pub member: bool,
    /// The paths that go on from here.
    pub children: Set,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl Set {
    /// The empty set.
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// The set of these paths.
    pub fn from_paths(paths: impl IntoIterator<Item = Path>) -> Self {
        let alone = |path: Path| {
            let mut below = Self::new();
            for (i, element) in path.0.into_iter().rev().enumerate() {
                below = Self { nodes: vec![Node { element, member: i == 0, children: below }] };
            }
            below.nodes
        };
        Self::from_nodes(paths.into_iter().flat_map(alone).collect())
    }

    /// The set of these paths of fields, each with dots between: `metadata.labels`.
    pub fn of_fields(paths: &[&str]) -> Self {
        Self::from_paths(paths.iter().map(|p| Path::of_fields(&p.split('.').collect::<Vec<_>>())))
    }

    /// A set of nodes in any order; nodes of equal elements are joined. However often an element comes, what is below
    /// all of it is put in order once.
    pub(crate) fn from_nodes(mut nodes: Vec<Node>) -> Self {
        if nodes.is_sorted_by(|a, b| a.element < b.element) {
            return Self { nodes };
        }
        nodes.sort_by(|a, b| a.element.cmp(&b.element));
        let (mut joined, mut grown): (Vec<Node>, Vec<usize>) = (Vec::with_capacity(nodes.len()), Vec::new());
        for node in nodes {
            let last = joined.len().saturating_sub(1);
            match joined.last_mut() {
                Some(kept) if kept.element == node.element => {
                    kept.member |= node.member;
                    kept.children.nodes.extend(node.children.nodes);
                    if grown.last() != Some(&last) {
                        grown.push(last);
                    }
                }
                _ => joined.push(node),
            }
        }
        for i in grown {
            let below = std::mem::take(&mut joined[i].children.nodes);
            joined[i].children = Self::from_nodes(below);
        }
        Self { nodes: joined }
    }

    /// All paths of all sets.
    pub fn union_of<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sets: Vec<&Self> = sets.into_iter().filter(|set| !set.is_empty()).collect();
        match (sets.pop(), sets.pop()) {
            (None, _) => Self::new(),
            (Some(only), None) => only.clone(),
            (Some(last), Some(other)) if sets.is_empty() => other.union(last),
            (Some(last), Some(other)) => {
                sets.extend([other, last]);
                Self::from_nodes(sets.into_iter().flat_map(|set| set.nodes.iter().cloned()).collect())
            }
        }
    }

    /// No path is in the set.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many paths are in the set.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|n| usize::from(n.member) + n.children.len()).sum()
    }

    fn position(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|n| n.element.cmp(element))
    }

    /// The node of an element.
    pub fn get(&self, element: &PathElement) -> Option<&Node> {
        self.position(element).ok().map(|i| &self.nodes[i])
    }

    /// The node of a field.
    pub fn field(&self, name: &str) -> Option<&Node> {
        // Fields come first in the order of elements.
        let i = self.nodes.binary_search_by(|n| match &n.element {
            PathElement::Field(f) => (**f).cmp(name),
            _ => Ordering::Greater,
        });
        i.ok().map(|i| &self.nodes[i])
    }

    /// The elements at the root.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Adds a path; the empty one is ignored.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let i = self.position(first).unwrap_or_else(|i| {
            effort::spend(self.nodes.len() - i);
            self.nodes.insert(i, Node { element: first.clone(), member: false, children: Self::new() });
            i
        });
        if rest.is_empty() {
            self.nodes[i].member = true;
        } else {
            self.nodes[i].children.insert(rest);
        }
    }

    /// Whether a path is in the set.
    pub fn has(&self, path: &[PathElement]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        self.get(first).is_some_and(|n| if rest.is_empty() { n.member } else { n.children.has(rest) })
    }

    /// All paths of both.
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        self.zip(other, true, true, &|a, b| Node {
            element: a.element.clone(),
            member: a.member || b.member,
            children: a.children.union(&b.children),
        })
    }

    /// The paths that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        if self.is_empty() || other.is_empty() {
            return Self::new();
        }
        let both = |a: &Node, b: &Node| Node {
            element: a.element.clone(),
            member: a.member && b.member,
            children: a.children.intersection(&b.children),
        };
        // Many owners of little are compared with one change of much.
        if other.is_far_more_than(self) {
            let nodes = self.nodes.iter().filter_map(|a| other.get(&a.element).map(|b| both(a, b)));
            return Self { nodes: nodes.filter(|node| !node.is_empty()).collect() };
        }
        self.zip(other, false, false, &both)
    }

    /// The paths that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        self.less(other, &|a, b| Node {
            element: a.element.clone(),
            member: a.member && !b.member,
            children: a.children.difference(&b.children),
        })
    }

    /// What is left of each node of both, and the nodes that `other` does not have.
    fn less(&self, other: &Self, both: &dyn Fn(&Node, &Node) -> Node) -> Self {
        if !other.is_far_more_than(self) {
            return self.zip(other, true, false, both);
        }
        let left = |a: &Node| other.get(&a.element).map_or_else(|| a.clone(), |b| both(a, b));
        Self { nodes: self.nodes.iter().map(left).filter(|node| !node.is_empty()).collect() }
    }

    /// Whether looking up every node of `few` costs less than walking both.
    fn is_far_more_than(&self, few: &Self) -> bool {
        self.nodes.len() / 16 > few.nodes.len()
    }

    /// Takes the paths of `other` out. Says whether there were any.
    pub fn subtract(&mut self, other: &Self) -> bool {
        let take = |mine: &mut Node, node: &Node| {
            let lost = node.member && mine.member;
            mine.member &= !node.member;
            mine.children.subtract(&node.children) || lost
        };
        let mut changed = false;
        if other.nodes.len() < self.nodes.len() {
            let mut emptied = false;
            for node in &other.nodes {
                let Ok(i) = self.position(&node.element) else { continue };
                changed |= take(&mut self.nodes[i], node);
                emptied |= self.nodes[i].is_empty();
            }
            if emptied {
                self.nodes.retain(|node| !node.is_empty());
            }
        } else {
            self.nodes.retain_mut(|mine| {
                if let Some(node) = other.get(&mine.element) {
                    changed |= take(mine, node);
                }
                !mine.is_empty()
            });
        }
        changed
    }

    /// The paths that are neither in `other` nor below one that is.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        self.less(other, &|a, b| Node {
            element: a.element.clone(),
            member: a.member && !b.member,
            children: if b.member { Self::new() } else { a.children.recursive_difference(&b.children) },
        })
    }

    /// Walks both in order; keeps what only one has as asked, and what `both` makes of common nodes.
    fn zip(&self, other: &Self, left: bool, right: bool, both: &dyn Fn(&Node, &Node) -> Node) -> Self {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let (mut a, mut b) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) => x.element.cmp(&y.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let x = if order.is_le() { a.next() } else { None };
            let y = if order.is_ge() { b.next() } else { None };
            match (x, y) {
                (Some(x), Some(y)) => {
                    let node = both(x, y);
                    if !node.is_empty() {
                        nodes.push(node);
                    }
                }
                (Some(x), None) if left => nodes.push(x.clone()),
                (None, Some(y)) if right => nodes.push(y.clone()),
                _ => {}
            }
        }
        Self { nodes }
    }

    /// Whether every path of this set is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.nodes.iter().all(|n| {
            other
                .get(&n.element)
                .is_some_and(|o| (o.member || !n.member) && n.children.is_subset(&o.children))
        })
    }

    /// The paths that no other path of the set begins with.
    pub fn leaves(&self) -> Self {
        let nodes = self.nodes.iter().map(|n| Node {
            element: n.element.clone(),
            member: n.member && n.children.is_empty(),
            children: n.children.leaves(),
        });
        Self { nodes: nodes.collect() }
    }

    /// Every path, in the order of messages: what ends at a level before what goes deeper.
    pub fn for_each(&self, visit: &mut dyn FnMut(&[PathElement])) {
        self.walk(&mut Vec::new(), visit);
    }

    fn walk(&self, path: &mut Vec<PathElement>, visit: &mut dyn FnMut(&[PathElement])) {
        for node in self.nodes.iter().filter(|n| n.member) {
            path.push(node.element.clone());
            visit(path);
            path.pop();
        }
        for node in self.nodes.iter().filter(|n| !n.children.is_empty()) {
            path.push(node.element.clone());
            node.children.walk(path, visit);
            path.pop();
        }
    }

    /// Every path, in the order of [`for_each`](Self::for_each).
    pub fn paths(&self) -> Vec<Path> {
        let mut out = Vec::new();
        self.for_each(&mut |path| out.push(Path(path.to_vec())));
        out
    }

    /// The set in which a declared field that something below it is in, is in too. Only fields of structs have no
    /// membership of their own in an applied set, so comparing sets needs them to be put on one footing.
    pub(crate) fn with_named_fields(&self, schema: &Schema, id: Option<TypeId>) -> Self {
        let nodes = self.nodes.iter().map(|n| {
            let declared = match &n.element {
                PathElement::Field(name) => id.and_then(|id| schema.field(id, name)),
                _ => None,
            };
            let below = match &n.element {
                PathElement::Field(_) => {
                    declared.map(|f| f.ty).or_else(|| id.and_then(|id| schema.map_element(id)))
                }
                PathElement::Key(_) => id.and_then(|id| schema.list_element(id)),
                _ => None,
            };
            Node {
                element: n.element.clone(),
                member: n.member || (declared.is_some() && !n.children.is_empty()),
                children: n.children.with_named_fields(schema, below),
            }
        });
        Self { nodes: nodes.collect() }
    }
}

impl FromIterator<Path> for Set {
    fn from_iter<I: IntoIterator<Item = Path>>(paths: I) -> Self {
        Self::from_paths(paths)
    }
}
