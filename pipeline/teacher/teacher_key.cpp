#include "pipeline/teacher/teacher_key.hpp"

#include <cstdlib>

namespace distilld {

Result<std::string> read_bearer(const std::string& variable) {
    if (variable.empty()) {
        return std::string();
    }
    const char* key = std::getenv(variable.c_str());
    if (key == nullptr || *key == '\0') {
        return invalid_input("/teacher/api_key_env: the environment variable " + variable + " is not set");
    }
    std::string bearer = key;
    if (bearer.find_first_of("\r\n") != std::string::npos) {
        return invalid_input("/teacher/api_key_env: the value of " + variable + " has more than one line");
    }
    return bearer;
}

}  // namespace distilld
