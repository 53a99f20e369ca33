#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <regex>

#include "api/kinds/text_checks.hpp"
#include "api/kinds/value_kinds.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

class TextKind final : public ValueKind {
  public:
    explicit TextKind(const TextRange& range) : range_(range), form_(range.form) {
        if (form_ != nullptr && form_->pattern != nullptr) {
            pattern_ = form_->pattern;
        }
    }

    std::optional<json::value> read(const json::value& value, const FieldReport& report) const override {
        const auto* given = value.if_string();
        if (given == nullptr) {
            return refuse(report, "wrong_type", "a string is expected, not " + kind_name(value));
        }
        const std::string text(*given);
        if (text.empty() && !range_.may_be_empty) {
            report.violate("invalid_value", "must not be empty");
        } else if (text.size() > range_.max_bytes) {
            report.violate("out_of_range", "is longer than " + std::to_string(range_.max_bytes) + " bytes");
        } else if (range_.may_break_lines ? has_odd_control_character(text) : has_control_character(text)) {
            report.violate("invalid_value", range_.may_break_lines
                                                ? "must not contain control characters but line feeds and tabs"
                                                : "must not contain control characters");
        } else if (auto wrong = text.empty() ? "" : wrong_form(text); !wrong.empty()) {
            report.violate("invalid_value", std::move(wrong));
        } else {
            return value;
        }
        return std::nullopt;
    }
    json::object schema() const override {
        json::object schema{{"type", "string"}};
        if (form_ != nullptr && form_->format != nullptr && !range_.may_be_empty) {
            schema["format"] = form_->format;
            return schema;
        }
        if (!range_.may_be_empty) {
            schema["minLength"] = 1;
        }
        schema["maxLength"] = range_.max_bytes;
        if (form_ != nullptr && form_->pattern != nullptr) {
            schema["pattern"] = std::string("^(") + form_->pattern + (range_.may_be_empty ? ")?$" : ")$");
        }
        return schema;
    }
    std::string values() const override {
        return range_.what != nullptr ? range_.what
               : form_ != nullptr     ? form_->values
                                      : "1–" + std::to_string(range_.max_bytes) + " characters";
    }
    std::string plain_values() const override { return range_.what != nullptr || form_ != nullptr ? values() : "text"; }
    std::string wanted() const override { return "a text"; }
    std::string type_name() const override {
        return range_.what == nullptr                              ? range_.type_name
               : std::string_view(range_.what).ends_with("folder") ? "DIR"
                                                                   : "FILE";
    }
    FieldShape shape() const override { return FieldShape::text; }
    std::optional<PathUse> path_use() const override { return range_.use; }

  private:
    [[nodiscard]] std::string wrong_form(const std::string& text) const {
        if (form_ != nullptr && form_->check != nullptr) {
            return form_->check(text);
        }
        return pattern_ && !std::regex_match(text, *pattern_) ? form_->complaint : "";
    }

    TextRange range_;
    const TextForm* form_;
    std::optional<std::regex> pattern_;
};

class ListKind final : public ValueKind {
  public:
    explicit ListKind(const ListRange& range) : range_(range), text_(range.text) {}

    std::optional<json::value> read(const json::value& value, const FieldReport& report) const override {
        if (range_.one_alone && value.is_string()) {
            return text_.read(value, report) ? std::optional<json::value>(json::array{value}) : std::nullopt;
        }
        const auto* array = value.if_array();
        if (array == nullptr) {
            return refuse(report, "wrong_type", "an array of strings is expected, not " + kind_name(value));
        }
        if (array->size() < range_.min_count) {
            report.violate("invalid_value", range_.if_too_few);
            return std::nullopt;
        }
        if (array->size() > range_.max_count) {
            report.violate("out_of_range", "lists more than " + std::to_string(range_.max_count));
            return std::nullopt;
        }
        const auto wrong_before = report.violations.size();
        for (auto one = array->begin(); one != array->end(); ++one) {
            const auto pointer = std::string(report.pointer) + "/" + std::to_string(one - array->begin());
            const FieldReport of_one{pointer, report.violations, report.hides_values};
            if (text_.read(*one, of_one) && range_.unique && std::find(array->begin(), one, *one) != one) {
                const auto quoted = report.hides_values ? "" : quote(one->get_string()) + " ";
                of_one.violate("conflict", quoted + "is listed twice");
            }
        }
        return report.violations.size() == wrong_before ? std::optional(value) : std::nullopt;
    }
    json::value write(json::value kept) const override {
        auto& texts = kept.get_array();
        return range_.one_alone && texts.size() == 1 ? texts.front() : kept;
    }
    json::object schema() const override {
        json::object list{{"type", "array"}};
        if (range_.min_count > 0) {
            list["minItems"] = range_.min_count;
        }
        list["maxItems"] = range_.max_count;
        if (range_.unique) {
            list["uniqueItems"] = true;
        }
        list["items"] = text_.schema();
        return range_.one_alone ? json::object{{"oneOf", json::array{text_.schema(), list}}} : list;
    }
    std::string values() const override {
        const auto count = std::to_string(range_.max_count);
        if (range_.one_alone) {
            return text_.values() + ", or a list of up to " + count;
        }
        return range_.min_count > 0 ? std::to_string(range_.min_count) + "–" + count + " " + text_.values() +
                                          (range_.unique ? "s, each once" : "s")
                                    : "up to " + count + " texts of " + text_.values();
    }
    std::string plain_values() const override { return "list of " + text_.plain_values() + "s"; }
    std::string wanted() const override { return "a list of texts"; }
    std::string type_name() const override { return text_.type_name(); }
    FieldShape shape() const override { return FieldShape::list_of_texts; }
    std::optional<PathUse> path_use() const override { return text_.path_use(); }

  private:
    ListRange range_;
    TextKind text_;
};

/// Does not quote a URL that may contain a password.
std::string wrong_url(const std::string& text) {
    const auto url = boost::urls::parse_uri(text);
    if (!url) {
        return quote(text) + " is not a URL such as http://host:8000";
    }
    if (url->scheme() != "http" && url->scheme() != "https") {
        return quote(text) + " is neither http nor https";
    }
    if (url->encoded_host().empty()) {
        return quote(text) + " has no host";
    }
    if (url->has_port() && (url->port_number() == 0 || url->port().empty())) {
        return quote(text) + " has a port that is not 1 to 65535";
    }
    if (url->has_userinfo()) {
        return "must not contain a user name or password: put them into environment variables";
    }
    if (url->has_fragment()) {
        return quote(text) + " has a fragment (#…), which is never sent";
    }
    return "";
}

}  // namespace

const TextForm kUrlForm{
    .pattern = "https?://.+", .values = "`http` or `https` URL", .format = "uri", .check = wrong_url};

ValueKindPtr text_kind(TextRange range) {
    return std::make_shared<TextKind>(range);
}
ValueKindPtr list_kind(ListRange range) {
    return std::make_shared<ListKind>(range);
}

}  // namespace distilld::api
