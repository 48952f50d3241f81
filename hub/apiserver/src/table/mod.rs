pub mod jsonpath;
