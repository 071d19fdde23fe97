"""Every JSON document as declared types, one module per verb or part that verbs share."""
