//! Which functions there are: the standard ones and the libraries that Kubernetes 1.36 adds.
//!
//! A line is `name(argument, …): result`; `@` before the name marks a member function, whose target is the first
//! argument. Single capital letters stand for any one type.

use std::{collections::BTreeMap, sync::LazyLock};

use crate::types::{Bindings, Type};

const TABLE: &str = "
!_(bool): bool
-_(int): int
-_(double): double
_&&_(bool, bool): bool
_||_(bool, bool): bool
_?_:_(bool, A, A): A
_==_(A, A): bool
_!=_(A, A): bool
@in(A, list(A)): bool
@in(A, map(A, B)): bool
_+_(int, int): int
_+_(uint, uint): uint
_+_(double, double): double
_+_(string, string): string
_+_(bytes, bytes): bytes
_+_(list(A), list(A)): list(A)
_+_(timestamp, duration): timestamp
_+_(duration, timestamp): timestamp
_+_(duration, duration): duration
_-_(int, int): int
_-_(uint, uint): uint
_-_(double, double): double
_-_(timestamp, timestamp): duration
_-_(timestamp, duration): timestamp
_-_(duration, duration): duration
_*_(int, int): int
_*_(uint, uint): uint
_*_(double, double): double
_/_(int, int): int
_/_(uint, uint): uint
_/_(double, double): double
_%_(int, int): int
_%_(uint, uint): uint
_[_](list(A), int): A
_[_](map(A, B), A): B
_[_](optional(list(A)), int): optional(A)
_[_](optional(map(A, B)), A): optional(B)
_[?_](list(A), int): optional(A)
_[?_](map(A, B), A): optional(B)
_[?_](optional(list(A)), int): optional(A)
_[?_](optional(map(A, B)), A): optional(B)
dyn(A): dyn
type(A): type
size(string): int
size(bytes): int
size(list(A)): int
size(map(A, B)): int
@size(string): int
@size(bytes): int
@size(list(A)): int
@size(map(A, B)): int
bool(bool): bool
bool(string): bool
int(int): int
int(uint): int
int(double): int
int(string): int
int(timestamp): int
int(duration): int
uint(uint): uint
uint(int): uint
uint(double): uint
uint(string): uint
double(double): double
double(int): double
double(uint): double
double(string): double
string(string): string
string(bool): string
string(int): string
string(uint): string
string(double): string
string(bytes): string
string(timestamp): string
string(duration): string
string(net.IP): string
string(net.CIDR): string
bytes(bytes): bytes
bytes(string): bytes
duration(duration): duration
duration(string): duration
duration(int): duration
timestamp(timestamp): timestamp
timestamp(string): timestamp
timestamp(int): timestamp
@contains(string, string): bool
@startsWith(string, string): bool
@endsWith(string, string): bool
@matches(string, string): bool
matches(string, string): bool
@getFullYear(timestamp): int
@getFullYear(timestamp, string): int
@getMonth(timestamp): int
@getMonth(timestamp, string): int
@getDayOfYear(timestamp): int
@getDayOfYear(timestamp, string): int
@getDayOfMonth(timestamp): int
@getDayOfMonth(timestamp, string): int
@getDate(timestamp): int
@getDate(timestamp, string): int
@getDayOfWeek(timestamp): int
@getDayOfWeek(timestamp, string): int
@getHours(timestamp): int
@getHours(timestamp, string): int
@getHours(duration): int
@getMinutes(timestamp): int
@getMinutes(timestamp, string): int
@getMinutes(duration): int
@getSeconds(timestamp): int
@getSeconds(timestamp, string): int
@getSeconds(duration): int
@getMilliseconds(timestamp): int
@getMilliseconds(timestamp, string): int
@getMilliseconds(duration): int
optional.of(A): optional(A)
optional.none(): optional(A)
optional.ofNonZeroValue(A): optional(A)
@hasValue(optional(A)): bool
@value(optional(A)): A
@or(optional(A), optional(A)): optional(A)
@orValue(optional(A), A): A
@charAt(string, int): string
@indexOf(string, string): int
@indexOf(string, string, int): int
@lastIndexOf(string, string): int
@lastIndexOf(string, string, int): int
@lowerAscii(string): string
@upperAscii(string): string
@replace(string, string, string): string
@replace(string, string, string, int): string
@split(string, string): list(string)
@split(string, string, int): list(string)
@substring(string, int): string
@substring(string, int, int): string
@trim(string): string
@join(list(string)): string
@join(list(string), string): string
@format(string, list(dyn)): string
strings.quote(string): string
@isSorted(list(A)): bool
@sum(list(int)): int
@sum(list(uint)): uint
@sum(list(double)): double
@sum(list(duration)): duration
@min(list(A)): A
@max(list(A)): A
@indexOf(list(A), A): int
@lastIndexOf(list(A), A): int
@slice(list(A), int, int): list(A)
@flatten(list(list(A))): list(A)
@flatten(list(dyn), int): list(dyn)
@sort(list(A)): list(A)
@distinct(list(A)): list(A)
@reverse(list(A)): list(A)
@first(list(A)): optional(A)
@last(list(A)): optional(A)
lists.range(int): list(int)
sets.contains(list(A), list(A)): bool
sets.equivalent(list(A), list(A)): bool
sets.intersects(list(A), list(A)): bool
@find(string, string): string
@findAll(string, string): list(string)
@findAll(string, string, int): list(string)
url(string): kubernetes.URL
isURL(string): bool
@getScheme(kubernetes.URL): string
@getHost(kubernetes.URL): string
@getHostname(kubernetes.URL): string
@getPort(kubernetes.URL): string
@getEscapedPath(kubernetes.URL): string
@getQuery(kubernetes.URL): map(string, list(string))
quantity(string): kubernetes.Quantity
isQuantity(string): bool
@sign(kubernetes.Quantity): int
@isInteger(kubernetes.Quantity): bool
@asInteger(kubernetes.Quantity): int
@asApproximateFloat(kubernetes.Quantity): double
@add(kubernetes.Quantity, kubernetes.Quantity): kubernetes.Quantity
@add(kubernetes.Quantity, int): kubernetes.Quantity
@sub(kubernetes.Quantity, kubernetes.Quantity): kubernetes.Quantity
@sub(kubernetes.Quantity, int): kubernetes.Quantity
@isGreaterThan(kubernetes.Quantity, kubernetes.Quantity): bool
@isLessThan(kubernetes.Quantity, kubernetes.Quantity): bool
@compareTo(kubernetes.Quantity, kubernetes.Quantity): int
ip(string): net.IP
isIP(string): bool
ip.isCanonical(string): bool
@family(net.IP): int
@isUnspecified(net.IP): bool
@isLoopback(net.IP): bool
@isLinkLocalMulticast(net.IP): bool
@isLinkLocalUnicast(net.IP): bool
@isGlobalUnicast(net.IP): bool
cidr(string): net.CIDR
isCIDR(string): bool
@containsIP(net.CIDR, string): bool
@containsIP(net.CIDR, net.IP): bool
@containsCIDR(net.CIDR, string): bool
@containsCIDR(net.CIDR, net.CIDR): bool
@ip(net.CIDR): net.IP
@masked(net.CIDR): net.CIDR
@prefixLength(net.CIDR): int
semver(string): kubernetes.Semver
semver(string, bool): kubernetes.Semver
isSemver(string): bool
isSemver(string, bool): bool
@major(kubernetes.Semver): int
@minor(kubernetes.Semver): int
@patch(kubernetes.Semver): int
@isGreaterThan(kubernetes.Semver, kubernetes.Semver): bool
@isLessThan(kubernetes.Semver, kubernetes.Semver): bool
@compareTo(kubernetes.Semver, kubernetes.Semver): int
format.named(string): optional(kubernetes.NamedFormat)
format.dns1123Label(): kubernetes.NamedFormat
format.dns1123Subdomain(): kubernetes.NamedFormat
format.dns1035Label(): kubernetes.NamedFormat
format.qualifiedName(): kubernetes.NamedFormat
format.dns1123LabelPrefix(): kubernetes.NamedFormat
format.dns1123SubdomainPrefix(): kubernetes.NamedFormat
format.dns1035LabelPrefix(): kubernetes.NamedFormat
format.labelValue(): kubernetes.NamedFormat
format.uri(): kubernetes.NamedFormat
format.uuid(): kubernetes.NamedFormat
format.byte(): kubernetes.NamedFormat
format.date(): kubernetes.NamedFormat
format.datetime(): kubernetes.NamedFormat
@validate(kubernetes.NamedFormat, string): optional(list(string))
";

const OPAQUE: [&str; 6] = [
    "kubernetes.URL",
    "kubernetes.Quantity",
    "net.IP",
    "net.CIDR",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
];
/// Relations hold between numbers of any kinds, and between two of these.
const ORDERED: [&str; 6] = ["bool", "string", "bytes", "timestamp", "duration", "int"];

/// One way to call a function. Letters are parameters 0, 1, ….
#[derive(Debug)]
pub(crate) struct Signature {
    pub(crate) member: bool,
    args: Vec<Type>,
    result: Type,
}

impl Signature {
    /// The types with parameters of their own.
    pub(crate) fn instantiate(&self, bindings: &mut Bindings) -> (Vec<Type>, Type) {
        let fresh = [bindings.fresh(), bindings.fresh()];
        (self.args.iter().map(|a| replace(a, &fresh)).collect(), replace(&self.result, &fresh))
    }

    pub(crate) fn arity(&self) -> usize {
        self.args.len()
    }
}

fn replace(of: &Type, fresh: &[Type; 2]) -> Type {
    match of {
        Type::Param(index) => fresh[*index % 2].clone(),
        Type::List(item) => Type::list(replace(item, fresh)),
        Type::Map(key, value) => Type::map(replace(key, fresh), replace(value, fresh)),
        Type::Optional(item) => Type::optional(replace(item, fresh)),
        other => other.clone(),
    }
}

/// The ways to call a function.
pub(crate) fn of(name: &str) -> &'static [Signature] {
    static ALL: LazyLock<BTreeMap<&'static str, Vec<Signature>>> = LazyLock::new(read);
    ALL.get(name).map(Vec::as_slice).unwrap_or_default()
}

fn read() -> BTreeMap<&'static str, Vec<Signature>> {
    let mut all: BTreeMap<&'static str, Vec<Signature>> = BTreeMap::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let Some((head, result)) = line.rsplit_once("): ") else { continue };
        let Some((name, args)) = head.split_once('(') else { continue };
        let (name, member) = match name.strip_prefix('@') {
            Some(rest) if rest != "in" => (rest, true),
            _ => (name, false),
        };
        let args = split(args).into_iter().map(type_of).collect();
        all.entry(name).or_default().push(Signature { member, args, result: type_of(result) });
    }
    for name in ["_<_", "_<=_", "_>_", "_>=_"] {
        let list = all.entry(name).or_default();
        let mut add =
            |a: Type, b: Type| list.push(Signature { member: false, args: vec![a, b], result: Type::Bool });
        ORDERED.iter().for_each(|t| add(type_of(t), type_of(t)));
        for a in [Type::Int, Type::Uint, Type::Double] {
            for b in [Type::Int, Type::Uint, Type::Double] {
                add(a.clone(), b);
            }
        }
    }
    all
}

/// Splits at commas that stand in no brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut all, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (index, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                all.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        all.push(text[start..].trim());
    }
    all
}

fn type_of(text: &str) -> Type {
    let text = text.trim();
    if let Some((outer, inner)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        let mut inner = split(inner).into_iter().map(type_of);
        let first = inner.next().unwrap_or(Type::Dyn);
        return match outer {
            "list" => Type::list(first),
            "optional" => Type::optional(first),
            _ => Type::map(first, inner.next().unwrap_or(Type::Dyn)),
        };
    }
    match text {
        "A" => Type::Param(0),
        "B" => Type::Param(1),
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::Text,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "type" => Type::Meta,
        other => OPAQUE.iter().find(|name| **name == other).map_or(Type::Dyn, |name| Type::Opaque(name)),
    }
}
