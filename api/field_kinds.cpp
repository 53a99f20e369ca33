#include "api/field_kinds.hpp"

#include "api/job_spec_json.hpp"
#include "api/member_kind.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

class BooleanKind final : public MemberKind<bool> {
  public:
    using MemberKind::MemberKind;

    json::object schema() const override { return {{"type", "boolean"}}; }
    std::string values() const override { return "boolean"; }
    FieldShape shape() const override { return FieldShape::boolean; }

  protected:
    std::optional<bool> read_value(const json::value& value, const FieldReport& report) const override {
        if (!value.is_bool()) {
            report.wrong_type("a boolean", value);
            return std::nullopt;
        }
        return value.get_bool();
    }
};

class ObjectKind final : public MemberKind<std::string> {
  public:
    using MemberKind::MemberKind;

    json::object schema() const override { return {{"type", "object"}}; }
    std::string values() const override { return "object"; }

  protected:
    std::optional<std::string> read_value(const json::value& value, const FieldReport& report) const override {
        if (!value.is_object()) {
            report.wrong_type("an object", value);
            return std::nullopt;
        }
        return to_text(value);
    }
    json::value write_value(const std::string& text) const override {
        auto object = parse_json_text(text, kSpecDepthLimit);
        if (!object) {
            throw ErrorException(invalid_input("the spec holds text that is not JSON: " + object.error().reason));
        }
        return *std::move(object);
    }
};

}  // namespace

void FieldReport::violate(std::string code, std::string detail) const {
    violations.push_back(Violation{std::string(pointer), std::move(code), std::move(detail)});
}

void FieldReport::wrong_type(std::string_view wanted, const json::value& got) const {
    violate("wrong_type", std::string(wanted) + " is expected, not " + kind_name(got));
}

FieldKindPtr make_boolean(Member<bool> member) {
    return std::make_shared<BooleanKind>(std::move(member));
}
FieldKindPtr make_object(Member<std::string> member) {
    return std::make_shared<ObjectKind>(std::move(member));
}

}  // namespace distilld::api
