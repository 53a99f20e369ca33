#pragma once

#include <string>

namespace distilld::api {

/// The contract of the REST API: api/openapi.yaml at the time of the build.
[[nodiscard]] const std::string& openapi_yaml();

}  // namespace distilld::api
