#include "pipeline/teacher/protocols/kserve/model_config.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/system/error_code.hpp>

namespace distilld::kserve {
namespace {

namespace json = boost::json;

/// An input that may be left out says so.
bool is_optional(const json::object& input) {
    const json::value* optional = input.if_contains("optional");
    return optional != nullptr && optional->is_bool() && optional->get_bool();
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view text) {
    boost::system::error_code failed;
    const json::value value = json::parse(text, failed);
    const json::object* object = failed ? nullptr : value.if_object();
    if (object == nullptr) {
        return teacher_error("the model's configuration is not a JSON object");
    }
    ModelConfig config;
    if (const json::value* size = object->if_contains("max_batch_size");
        size != nullptr && size->is_int64() && size->get_int64() > 0) {
        config.max_batch_size = static_cast<std::uint64_t>(size->get_int64());
    }
    const json::value* inputs = object->if_contains("input");
    if (inputs == nullptr || !inputs->is_array()) {
        return config;
    }
    for (const json::value& entry : inputs->get_array()) {
        const json::object* input = entry.if_object();
        const json::value* name = input == nullptr ? nullptr : input->if_contains("name");
        if (name != nullptr && name->is_string() && !is_optional(*input)) {
            config.required_inputs.emplace_back(name->get_string());
        }
    }
    return config;
}

}  // namespace distilld::kserve
