#pragma once

namespace distilld {

/// Environment variable with the folder below which specs may name files that hold teachers' keys.
inline constexpr const char* kKeyRootVariable = "DISTILLD_KEYS_DIR";

}  // namespace distilld
