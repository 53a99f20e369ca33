#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json_members.hpp"

/// Additions to JsonMembers for config.json files.
namespace distilld::models {

/// Parses `text`; an empty text is an empty object.
Result<boost::json::object> parse_config_object(std::string_view text, const JsonPlace& place);

/// Checks that the field is absent or equal to `expected`.
void require_text(JsonMembers& config, std::string_view name, std::string_view expected);

/// Reads a token id; null means none, an absent field leaves the target unchanged.
void read_id(JsonMembers& config, std::string_view name, std::optional<std::int64_t>& target);

/// The same for one id or a list of ids.
void read_ids(JsonMembers& config, std::string_view name, std::vector<std::int64_t>& target);

}  // namespace distilld::models
