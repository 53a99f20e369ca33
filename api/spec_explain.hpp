#pragma once

#include <boost/json/value.hpp>
#include <map>
#include <string>
#include <string_view>

#include "api/spec_fields.hpp"
#include "base/error.hpp"

/// Explanations of the fields of a job spec for the command line, from their table.
namespace distilld::api {

/// Explains a field: "/training/beta", "training.beta", or "beta" if it is unique. For a section ("training", or "" for
/// all), lists its fields, one per line. An error suggests a name.
[[nodiscard]] Result<std::string> explain(const SpecTable& table, std::string_view name);

/// A spec to start from, as JSON with comments: every field of the table with its meaning, those in `values` (by their
/// pointers) with their values, all others commented out at their defaults.
[[nodiscard]] std::string starting_spec(const SpecTable& table,
                                        const std::map<std::string, boost::json::value>& values);

}  // namespace distilld::api
