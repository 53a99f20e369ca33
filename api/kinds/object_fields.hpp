#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "api/kinds/field_kinds.hpp"

/// Objects from clients that are smaller than a job spec, with one row per member.
namespace distilld::api {

template <class Root>
struct ObjectField {
    std::string_view name;
    FieldKind<Root> kind;
    bool required = false;
};

/// Parses an object. If the text is not one, returns nullopt and reports the reason; also reports duplicate keys.
/// `what` names the text in messages: "the body".
[[nodiscard]] std::optional<boost::json::object> read_object(std::string_view text, const char* what,
                                                             std::size_t max_bytes, std::size_t max_depth,
                                                             std::vector<Violation>& violations);

/// Reports unknown members of the object at `pointer` with a suggestion: the result of `meant`, or else the most
/// similar known name.
void refuse_unknown(const boost::json::object& object, const std::string& pointer,
                    const std::vector<std::string>& known, std::vector<Violation>& violations,
                    const std::function<std::string(const std::string& name)>& meant = nullptr);

/// Sets the members and reports all violations. `others` are known members that are read elsewhere.
template <class Root>
void read_fields(const boost::json::object& object, const std::vector<ObjectField<Root>>& fields, Root& root,
                 std::vector<Violation>& violations, std::initializer_list<const char*> others = {}) {
    std::vector<std::string> names(others.begin(), others.end());
    for (const auto& field : fields) {
        names.emplace_back(field.name);
        const auto pointer = "/" + names.back();
        const FieldReport report{pointer, violations};
        if (const auto* value = object.if_contains(field.name)) {
            field.kind.read(*value, root, report);
        } else if (field.required) {
            report.violate("required", "is required: " + field.kind->wanted());
        }
    }
    refuse_unknown(object, "", names, violations);
}

}  // namespace distilld::api
