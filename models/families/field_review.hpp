#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_members.hpp"

namespace distilld::models {

/// Checks the members of a config.json that no reader uses. Those known to change the computation must have a value
/// without effect (otherwise an error in `config` names the field). Those known to be irrelevant are ignored;
/// `warnings` lists the rest. `family_fields` are read by the family itself.
void review_fields(JsonMembers& config, std::span<const std::string_view> family_fields,
                   std::vector<std::string>& warnings);

}  // namespace distilld::models
