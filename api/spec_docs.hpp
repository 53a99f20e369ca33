#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "api/spec_fields.hpp"
#include "base/error.hpp"

/// What documentation says of the fields of a job spec, written from their table. `distilld-spec-docs` puts it between
/// markers of the files; the prose around them is written by hand.
namespace distilld::api {

/// "training.seed" of "/training/seed".
[[nodiscard]] std::string dotted_name(std::string_view pointer);

/// "/training/seed" of "training.seed", "training/seed" and "/training/seed".
[[nodiscard]] std::string pointer_of(std::string_view name);

/// What stands in the column of defaults: "required", the value, or what is said in its place. Markdown.
[[nodiscard]] std::string default_text(const SpecField& field);

/// The rows of one section ("" = the fields of the document) as a Markdown table.
[[nodiscard]] std::string markdown_table(const SpecTable& table, std::string_view section);

/// JSON schema of a job spec, which stands at `root` of the document that it is part of: "#" when it is that document.
[[nodiscard]] boost::json::object job_spec_schema(const SpecTable& table,
                                                  const std::string& root = "#/components/schemas/JobSpec");

/// The same as YAML for components.schemas of an OpenAPI document: `JobSpec:` and its members, a line a field.
[[nodiscard]] std::string job_spec_schema_yaml(const SpecTable& table);

/// Replaces the lines between the line `begin` and the next line `end`, which both stay; an error when they are
/// missing.
[[nodiscard]] Result<void> replace_between(std::string& text, const std::string& begin, const std::string& end,
                                           const std::string& body);

/// docs/job-spec.md with its tables written anew. They stand between the lines "<!-- fields of training -->" (of
/// "document" for the fields of none) and "<!-- end of fields -->"; every section has such lines, or it is an error.
[[nodiscard]] Result<std::string> with_field_tables(std::string markdown, const SpecTable& table);

/// api/openapi.yaml with its JobSpec schema written anew, between the lines "# JobSpec, by distilld-spec-docs" and
/// "# end of JobSpec".
[[nodiscard]] Result<std::string> with_job_spec_schema(std::string yaml, const SpecTable& table);

}  // namespace distilld::api
