#pragma once

#include <string>

namespace distilld::api {

/// The contract of the REST API, api/openapi.yaml, as it was when the program was built.
[[nodiscard]] const std::string& openapi_yaml();

}  // namespace distilld::api
