//! What any Kubernetes object has: names, selectors, quantities, paths, Status.
