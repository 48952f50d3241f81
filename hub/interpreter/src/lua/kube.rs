//! The library `kube` that scripts reach by `require("kube")`.
//!
//! - `resourceAdd(r1, r2, …)`: the sum of quantities, as text
//! - `getResourceQuantity(r)`: a quantity as a number
//! - `accuratePodRequirements(podTemplate)`: what a pod of this template asks of its node
//! - `getPodDependencies(podTemplate, namespace)`: what a pod of this template refers to

use karmada_meta::Quantity;
use mlua::{Error, Lua, MultiValue, Result, Table, Value};
use serde_json::Value as Json;

use super::convert::{Empty, Marks, Reader};
use crate::{dependencies::template_dependencies, replicas::pod_requirements};

/// The library.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let kube = lua.create_table()?;
    kube.raw_set("resourceAdd", lua.create_function(|_, parts| add(&parts))?)?;
    kube.raw_set("getResourceQuantity", lua.create_function(|_, args| amount(&args))?)?;
    kube.raw_set("accuratePodRequirements", lua.create_function(|lua, args| requirements(lua, &args))?)?;
    kube.raw_set("getPodDependencies", lua.create_function(|lua, args| dependencies(lua, &args))?)?;
    Ok(kube)
}

fn add(parts: &MultiValue) -> Result<String> {
    let mut sum = Quantity::zero();
    for (i, part) in parts.iter().enumerate() {
        sum += quantity(part, "resourceAdd", i + 1)?;
    }
    Ok(sum.to_string())
}

fn amount(args: &MultiValue) -> Result<f64> {
    let Some(part) = args.front().filter(|_| args.len() == 1) else {
        return Err(Error::runtime("getResourceQuantity takes one argument"));
    };
    Ok(quantity(part, "getResourceQuantity", 1)?.as_f64())
}

fn quantity(value: &Value, function: &str, position: usize) -> Result<Quantity> {
    let text = match value {
        Value::Nil => return Ok(Quantity::zero()),
        Value::String(text) => text.to_string_lossy(),
        other => {
            let got = other.type_name();
            return Err(Error::runtime(format!(
                "bad argument #{position} to '{function}' (string expected, got {got})"
            )));
        }
    };
    Quantity::parse(&text).map_err(|error| Error::runtime(format!("{function}: {text:?}: {error}")))
}

fn requirements(lua: &Lua, args: &MultiValue) -> Result<Value> {
    let Some(template) = args.front().filter(|_| args.len() == 1) else {
        return Err(Error::runtime("accuratePodRequirements takes one argument"));
    };
    let marks = Marks::new(lua)?;
    let template = pod_template(&marks, template, "accuratePodRequirements")?;
    match pod_requirements(&template, template.get("spec").unwrap_or(&Json::Null)) {
        Ok(None) => Ok(Value::Nil),
        Ok(Some(found)) => marks.push(lua, &serde_json::to_value(found).map_err(Error::external)?),
        Err(error) => {
            Err(Error::runtime(format!("accuratePodRequirements: {} {}", error.field, error.problem)))
        }
    }
}

fn dependencies(lua: &Lua, args: &MultiValue) -> Result<Value> {
    let (Some(template), Some(namespace)) = (args.front(), args.get(1).filter(|_| args.len() == 2)) else {
        return Err(Error::runtime("getPodDependencies takes two arguments"));
    };
    let marks = Marks::new(lua)?;
    let template = pod_template(&marks, template, "getPodDependencies")?;
    let namespace = match namespace {
        Value::Nil => "default".to_owned(),
        other => match lua.coerce_string(other.clone())? {
            Some(text) => text.to_string_lossy(),
            None => return Err(Error::runtime("bad argument #2 to 'getPodDependencies' (string expected)")),
        },
    };
    let found = template_dependencies(&namespace, template.get("spec").unwrap_or(&Json::Null));
    marks.push(lua, &serde_json::to_value(found).map_err(Error::external)?)
}

fn pod_template(marks: &Marks, value: &Value, function: &str) -> Result<Json> {
    if !value.is_table() {
        let got = value.type_name();
        return Err(Error::runtime(format!("bad argument #1 to '{function}' (table expected, got {got})")));
    }
    Reader::new(marks, Vec::new())
        .read(value, Empty::Map)
        .map_err(|error| Error::runtime(format!("{function}: {error}")))
}
