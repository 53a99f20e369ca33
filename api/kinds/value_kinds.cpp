#include "api/kinds/value_kinds.hpp"

#include <algorithm>
#include <boost/json/array.hpp>

#include "api/kinds/text_checks.hpp"
#include "base/ascii.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxDepth = 32;

/// A text value in the form of the documentation.
std::string in_code(const std::string& text) {
    return "`\"" + text + "\"`";
}

class BooleanKind final : public ValueKind {
  public:
    std::optional<json::value> read(const json::value& value, const FieldReport& report) const override {
        return value.is_bool() ? std::optional(value)
                               : refuse(report, "wrong_type", "a boolean is expected, not " + kind_name(value));
    }
    json::object schema() const override { return {{"type", "boolean"}}; }
    std::string values() const override { return "boolean"; }
    std::string plain_values() const override { return "true or false"; }
    std::string type_name() const override { return "{true,false}"; }
    FieldShape shape() const override { return FieldShape::boolean; }
};

class ObjectKind final : public ValueKind {
  public:
    std::optional<json::value> read(const json::value& value, const FieldReport& report) const override {
        return value.is_object() ? std::optional(value)
                                 : refuse(report, "wrong_type", "an object is expected, not " + kind_name(value));
    }
    json::object schema() const override { return {{"type", "object"}}; }
    std::string values() const override { return "object"; }
};

class ChoiceKind : public ValueKind {
  public:
    explicit ChoiceKind(std::vector<std::string> names) : names_(std::move(names)) {}

    std::optional<json::value> read(const json::value& value, const FieldReport& report) const override {
        const auto* text = value.if_string();
        if (text == nullptr) {
            return refuse(report, "wrong_type", std::string(expected()) + " is expected, not " + kind_name(value));
        }
        if (std::ranges::find(names_, std::string_view(*text)) != names_.end()) {
            return value;
        }
        const auto near = closest(*text, names_);
        const auto quoted = [](const std::string& name) { return "\"" + name + "\""; };
        return refuse(report, "invalid_value", quote(*text) + " is not one of " + joined(quoted, ", ", ", "),
                      near ? "; did you mean \"" + *near + "\"?" : "");
    }
    json::object schema() const override {
        return {{"type", "string"}, {"enum", json::array(names_.begin(), names_.end())}};
    }
    std::string values() const override { return joined(in_code, ", ", ", "); }
    std::string plain_values() const override { return joined(std::identity(), ", ", " or "); }
    std::string type_name() const override { return "{" + joined(std::identity(), ",", ",") + "}"; }
    FieldShape shape() const override { return FieldShape::text; }

  protected:
    [[nodiscard]] virtual const char* expected() const { return "a string"; }

  private:
    template <class Shown>
    [[nodiscard]] std::string joined(Shown shown, const char* between, const char* before_last) const {
        std::string all;
        for (std::size_t i = 0; i < names_.size(); ++i) {
            all += (i == 0 ? "" : i + 1 == names_.size() ? before_last : between) + shown(names_[i]);
        }
        return all;
    }

    std::vector<std::string> names_;
};

/// Writes true or false if one of them stands for the value.
class ChoiceOrBooleanKind final : public ChoiceKind {
  public:
    ChoiceOrBooleanKind(std::vector<std::string> names, std::string when_true, std::string when_false)
        : ChoiceKind(std::move(names)), when_true_(std::move(when_true)), when_false_(std::move(when_false)) {}

    std::optional<json::value> read(const json::value& value, const FieldReport& report) const override {
        if (const bool* flag = value.if_bool()) {
            return json::string(*flag ? when_true_ : when_false_);
        }
        return ChoiceKind::read(value, report);
    }
    json::value write(json::value kept) const override {
        const std::string_view text = kept.get_string();
        return text == when_true_ || text == when_false_ ? json::value(text == when_true_) : kept;
    }
    json::object schema() const override {
        return {{"oneOf", json::array{json::object{{"type", "boolean"}}, ChoiceKind::schema()}}};
    }
    std::string values() const override {
        return "boolean (true: " + in_code(when_true_) + ", false: " + in_code(when_false_) + "), " +
               ChoiceKind::values();
    }
    FieldShape shape() const override { return FieldShape::json; }

  protected:
    const char* expected() const override { return "a boolean or a string"; }

  private:
    std::string when_true_;
    std::string when_false_;
};

json::value boolean_of(const std::string& word) {
    const std::string lower = ascii_lower(word);
    const auto is = [&lower](const char* name) { return lower == name; };
    if (std::ranges::any_of(std::initializer_list<const char*>{"true", "yes", "on", "1"}, is)) {
        return true;
    }
    if (std::ranges::any_of(std::initializer_list<const char*>{"false", "no", "off", "0"}, is)) {
        return false;
    }
    return json::string(word);
}

}  // namespace

void FieldReport::violate(std::string code, std::string detail) const {
    violations.push_back(Violation{std::string(pointer), std::move(code), std::move(detail)});
}

void FieldReport::wrong_type(std::string_view wanted, const json::value& got) const {
    violate("wrong_type", std::string(wanted) + " is expected, not " + kind_name(got));
}

std::nullopt_t ValueKind::refuse(const FieldReport& report, const char* code, const std::string& detail,
                                 const std::string& hint) const {
    report.violate(code, (report.hides_values ? "must be " + wanted() : detail) + hint);
    return std::nullopt;
}

json::value ValueKind::value_of(const std::vector<std::string>& words) const {
    if (shape() == FieldShape::list_of_texts) {
        return json::array(words.begin(), words.end());
    }
    if (words.empty()) {
        return nullptr;
    }
    const auto& word = words.back();
    if (shape() == FieldShape::boolean) {
        return boolean_of(word);
    }
    if (shape() == FieldShape::json) {
        if (auto parsed = parse_json_text(word, kMaxDepth)) {
            return *std::move(parsed);
        }
    }
    return json::string(word);
}

ValueKindPtr boolean_kind() {
    return std::make_shared<BooleanKind>();
}
ValueKindPtr choice_kind(std::vector<std::string> names) {
    return std::make_shared<ChoiceKind>(std::move(names));
}
ValueKindPtr choice_or_boolean_kind(std::vector<std::string> names, std::string when_true, std::string when_false) {
    return std::make_shared<ChoiceOrBooleanKind>(std::move(names), std::move(when_true), std::move(when_false));
}
ValueKindPtr object_kind() {
    return std::make_shared<ObjectKind>();
}

}  // namespace distilld::api
