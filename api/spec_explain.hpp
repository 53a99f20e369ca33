#pragma once

#include <boost/json/value.hpp>
#include <map>
#include <string>
#include <string_view>

#include "api/spec_fields.hpp"
#include "base/error.hpp"

/// What the command line says of the fields of a job spec, by their table.
namespace distilld::api {

/// A field as people ask for it: "/training/beta", "training.beta", or "beta" where one field alone is called so. Of a
/// section ("training", or "" for the whole) its fields, a line each. An error says what it may have been meant for.
[[nodiscard]] Result<std::string> explain(const SpecTable& table, std::string_view name);

/// A spec to start from, as JSON with comments: every field of the table with what it means, those in `values` (by
/// their pointers) with their values, all others commented out at their defaults.
[[nodiscard]] std::string starting_spec(const SpecTable& table,
                                        const std::map<std::string, boost::json::value>& values);

}  // namespace distilld::api
