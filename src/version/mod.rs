pub(crate) mod edit;
