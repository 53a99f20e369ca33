#pragma once

#include <string>

#include "base/enum_names.hpp"

namespace distilld::http {

/// What a key allows. Each role includes the rights of the roles before it.
enum class Role {
    read,    ///< read everything that is not secret
    submit,  ///< submit jobs, and control the caller's own
    admin,   ///< everything
};
BOOST_DESCRIBE_ENUM(Role, read, submit, admin)

/// The owner of the key that came with a request.
struct Caller {
    std::string name;  ///< name of the key; a new key may take it after this one was revoked
    Role role = Role::read;
    std::string id;  ///< id of the key, which owns what is done with it. Empty: owns nothing
};

}  // namespace distilld::http
