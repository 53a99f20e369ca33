#include "api/field_kinds.hpp"

#include "base/json_text.hpp"

namespace distilld::api {

void FieldReport::violate(std::string code, std::string detail) const {
    violations.push_back(Violation{std::string(pointer), std::move(code), std::move(detail)});
}

void FieldReport::wrong_type(std::string_view wanted, const boost::json::value& got) const {
    violate("wrong_type", std::string(wanted) + " is expected, not " + kind_name(got));
}

}  // namespace distilld::api
