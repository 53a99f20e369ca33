#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json_members.hpp"

/// What config.json files need beside JsonMembers.
namespace distilld::models {

/// The object in `text`; an empty text is an empty object.
Result<boost::json::object> parse_config_object(std::string_view text, const JsonPlace& place);

/// A text for which only `expected` is supported; absent is fine.
void require_text(JsonMembers& config, std::string_view name, std::string_view expected);

/// A token id; null gives none, absence leaves the target.
void read_id(JsonMembers& config, std::string_view name, std::optional<std::int64_t>& target);

/// The same for one id or a list of ids.
void read_ids(JsonMembers& config, std::string_view name, std::vector<std::int64_t>& target);

}  // namespace distilld::models
