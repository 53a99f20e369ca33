#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "api/spec_fields.hpp"
#include "base/error.hpp"

/// Documentation of the fields of a job spec, generated from their table. `distilld-spec-docs` writes it between
/// markers; the prose around them is written by hand.
namespace distilld::api {

/// "training.seed" for "/training/seed".
[[nodiscard]] std::string dotted_name(std::string_view pointer);

/// "/training/seed" for "training.seed", "training/seed" and "/training/seed".
[[nodiscard]] std::string pointer_of(std::string_view name);

/// The column of defaults: "required", the value, or a note instead. Markdown.
[[nodiscard]] std::string default_text(const SpecField& field);

/// The rows of one section ("" = the fields of the document) as a Markdown table.
[[nodiscard]] std::string markdown_table(const SpecTable& table, std::string_view section);

/// JSON schema of a job spec at `root` of its document; "#" if it is the whole document.
[[nodiscard]] boost::json::object job_spec_schema(const SpecTable& table,
                                                  const std::string& root = "#/components/schemas/JobSpec");

/// The same as YAML for components.schemas of an OpenAPI document: `JobSpec:` and its members, one line per field.
[[nodiscard]] std::string job_spec_schema_yaml(const SpecTable& table);

/// Replaces the lines between the line `begin` and the next line `end`, which both stay; an error if they are missing.
[[nodiscard]] Result<void> replace_between(std::string& text, const std::string& begin, const std::string& end,
                                           const std::string& body);

/// docs/job-spec.md with its tables regenerated. Each is between the lines "<!-- fields of training -->" (of "document"
/// for fields outside sections) and "<!-- end of fields -->". A section without such lines is an error.
[[nodiscard]] Result<std::string> with_field_tables(std::string markdown, const SpecTable& table);

/// api/openapi.yaml with its JobSpec schema regenerated, between the lines "# JobSpec, by distilld-spec-docs" and "#
/// end of JobSpec".
[[nodiscard]] Result<std::string> with_job_spec_schema(std::string yaml, const SpecTable& table);

}  // namespace distilld::api
