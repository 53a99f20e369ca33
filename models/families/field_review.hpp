#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_members.hpp"

namespace distilld::models {

/// Looks at the members of a config.json that no reader asks for. Those known to change what a network computes must
/// have the value at which they do not (an error in `config` names the field otherwise); those known to be of no
/// consequence are passed over; the rest is named in `warnings`. `family_fields` are read by the family itself.
void review_fields(JsonMembers& config, std::span<const std::string_view> family_fields,
                   std::vector<std::string>& warnings);

}  // namespace distilld::models
