#pragma once

#include <array>
#include <string>

#include "base/enum_names.hpp"

namespace distilld::api {

/// What a key allows. Each role may do what those before it may.
enum class Role {
    read,    ///< look at everything that is no secret
    submit,  ///< submit jobs, and order about one's own
    admin,   ///< everything
};
inline constexpr std::array kRoleNames{
    EnumName<Role>{"read", Role::read},
    EnumName<Role>{"submit", Role::submit},
    EnumName<Role>{"admin", Role::admin},
};
constexpr const auto& enum_names(Role) {
    return kRoleNames;
}

/// Whose key a request came with.
struct Caller {
    std::string name;  ///< what people call the key; another may be called so once this one was revoked
    Role role = Role::read;
    std::string id;  ///< the key's own: what is done with it belongs to it. Empty: nothing does
};

}  // namespace distilld::api
