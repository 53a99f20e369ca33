#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <regex>

#include "api/member_kind.hpp"
#include "api/text_checks.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

class TextKind : public MemberKind<std::string> {
  public:
    TextKind(Member<std::string> member, TextRange range)
        : MemberKind(std::move(member)), range_(range), form_(range.form == nullptr ? "" : range.form->pattern) {}

    json::object schema() const override {
        json::object schema{{"type", "string"}};
        if (!range_.may_be_empty) {
            schema["minLength"] = 1;
        }
        schema["maxLength"] = range_.max_bytes;
        if (range_.form != nullptr) {
            schema["pattern"] = std::string("^(") + range_.form->pattern + (range_.may_be_empty ? ")?$" : ")$");
        }
        return schema;
    }
    std::string values() const override {
        return range_.form != nullptr ? range_.form->values : "1–" + std::to_string(range_.max_bytes) + " characters";
    }
    FieldShape shape() const override { return FieldShape::text; }

  protected:
    std::optional<std::string> read_value(const json::value& value, const FieldReport& report) const override {
        if (!value.is_string()) {
            report.wrong_type("a string", value);
            return std::nullopt;
        }
        std::string text(value.get_string());
        if (text.empty() && !range_.may_be_empty) {
            report.violate("invalid_value", "must not be empty");
        } else if (text.size() > range_.max_bytes) {
            report.violate("out_of_range", "is longer than " + std::to_string(range_.max_bytes) + " bytes");
        } else if (has_control_character(text)) {
            report.violate("invalid_value", "must not contain control characters");
        } else if (!text.empty() && range_.form != nullptr && !std::regex_match(text, form_)) {
            report.violate("invalid_value", range_.form->complaint);
        } else {
            return text;
        }
        return std::nullopt;
    }

  private:
    TextRange range_;
    std::regex form_;
};

class PathKind final : public TextKind {
  public:
    PathKind(Member<std::string> member, std::function<std::string*(JobSpec&)> text, PathUse use, const char* what,
             bool may_be_empty)
        : TextKind(std::move(member), {.max_bytes = kMaxPathBytes, .may_be_empty = may_be_empty}),
          text_(std::move(text)),
          use_(use),
          what_(what) {}

    std::string values() const override { return what_; }
    std::vector<std::string*> paths(JobSpec& spec) const override {
        std::string* text = text_(spec);
        return text == nullptr ? std::vector<std::string*>() : std::vector{text};
    }
    PathUse path_use() const override { return use_; }

  private:
    std::function<std::string*(JobSpec&)> text_;
    PathUse use_;
    const char* what_;
};

/// What is wrong with the URL of an endpoint; empty when nothing is. What may hold a password is not echoed.
std::string url_complaint(const std::string& text) {
    const auto url = boost::urls::parse_uri(text);
    if (!url || text.size() > kMaxPathBytes) {
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
        return "must not carry a user name or password: they belong into environment variables";
    }
    if (url->has_fragment()) {
        return quote(text) + " has a fragment (#…), which is never sent";
    }
    return "";
}

std::optional<std::string> read_url(const json::value& value, const FieldReport& report) {
    if (!value.is_string()) {
        report.wrong_type("a string (a URL)", value);
        return std::nullopt;
    }
    std::string text(value.get_string());
    auto complaint = url_complaint(text);
    if (complaint.empty()) {
        return text;
    }
    report.violate("invalid_value", std::move(complaint));
    return std::nullopt;
}

class UrlKind final : public MemberKind<std::string> {
  public:
    using MemberKind::MemberKind;

    json::object schema() const override {
        return {{"type", "string"}, {"maxLength", kMaxPathBytes}, {"pattern", "^(https?://.+)?$"}};
    }
    std::string values() const override { return "`http` or `https` URL"; }
    FieldShape shape() const override { return FieldShape::text; }

  protected:
    std::optional<std::string> read_value(const json::value& value, const FieldReport& report) const override {
        const auto* text = value.if_string();
        return text != nullptr && text->empty() ? std::optional<std::string>("") : read_url(value, report);
    }
};

class UrlsKind final : public MemberKind<std::vector<std::string>> {
  public:
    UrlsKind(Member<std::vector<std::string>> member, std::size_t max_count)
        : MemberKind(std::move(member)), max_count_(max_count) {}

    json::object schema() const override {
        return {{"type", "array"},
                {"minItems", 1},
                {"maxItems", max_count_},
                {"uniqueItems", true},
                {"items", json::object{{"type", "string"}, {"format", "uri"}}}};
    }
    std::string values() const override {
        return "1–" + std::to_string(max_count_) + " `http` or `https` URLs, each once";
    }
    FieldShape shape() const override { return FieldShape::list_of_texts; }

  protected:
    std::optional<std::vector<std::string>> read_value(const json::value& value,
                                                       const FieldReport& report) const override {
        if (!value.is_array()) {
            report.wrong_type("an array of URLs", value);
            return std::nullopt;
        }
        const auto& array = value.get_array();
        if (array.empty()) {
            report.violate("invalid_value", "must not be empty: give at least one URL, such as http://127.0.0.1:8600");
            return std::nullopt;
        }
        if (array.size() > max_count_) {
            report.violate("out_of_range", "lists more than " + std::to_string(max_count_) + " endpoints");
            return std::nullopt;
        }
        std::vector<std::string> urls;
        for (std::size_t i = 0; i < array.size(); ++i) {
            const auto pointer = std::string(report.pointer) + "/" + std::to_string(i);
            const FieldReport one{pointer, report.violations};
            if (auto url = read_url(array[i], one)) {
                if (std::find(urls.begin(), urls.end(), *url) != urls.end()) {
                    one.violate("conflict", quote(*url) + " is listed twice");
                } else {
                    urls.push_back(*std::move(url));
                }
            }
        }
        return urls.size() == array.size() ? std::optional(std::move(urls)) : std::nullopt;
    }

  private:
    std::size_t max_count_;
};

class ChoiceKind : public MemberKind<std::string> {
  public:
    ChoiceKind(Member<std::string> member, std::vector<std::string> names)
        : MemberKind(std::move(member)), names_(std::move(names)) {}

    json::object schema() const override {
        return {{"type", "string"}, {"enum", json::array(names_.begin(), names_.end())}};
    }
    std::string values() const override { return listed(in_code); }
    FieldShape shape() const override { return FieldShape::text; }

  protected:
    std::optional<std::string> read_value(const json::value& value, const FieldReport& report) const override {
        if (!value.is_string()) {
            report.wrong_type(wanted(), value);
            return std::nullopt;
        }
        std::string text(value.get_string());
        if (std::find(names_.begin(), names_.end(), text) != names_.end()) {
            return text;
        }
        auto detail =
            quote(text) + " is not one of " + listed([](const std::string& name) { return "\"" + name + "\""; });
        if (const auto near = closest(text, names_)) {
            detail += "; did you mean \"" + *near + "\"?";
        }
        report.violate("invalid_value", std::move(detail));
        return std::nullopt;
    }

    [[nodiscard]] virtual const char* wanted() const { return "a string"; }

  private:
    template <class Quoted>
    [[nodiscard]] std::string listed(Quoted quoted) const {
        std::string all;
        for (const auto& name : names_) {
            all += (all.empty() ? "" : ", ") + quoted(name);
        }
        return all;
    }

    std::vector<std::string> names_;
};

/// Written as true or false where they stand for the value.
class ChoiceOrBooleanKind final : public ChoiceKind {
  public:
    ChoiceOrBooleanKind(Member<std::string> member, std::vector<std::string> names, std::string when_true,
                        std::string when_false)
        : ChoiceKind(std::move(member), std::move(names)),
          when_true_(std::move(when_true)),
          when_false_(std::move(when_false)) {}

    json::object schema() const override {
        return {{"oneOf", json::array{json::object{{"type", "boolean"}}, ChoiceKind::schema()}}};
    }
    std::string values() const override {
        return "boolean (true: " + in_code(when_true_) + ", false: " + in_code(when_false_) + "), " +
               ChoiceKind::values();
    }
    FieldShape shape() const override { return FieldShape::json; }

  protected:
    std::optional<std::string> read_value(const json::value& value, const FieldReport& report) const override {
        if (const bool* flag = value.if_bool()) {
            return *flag ? when_true_ : when_false_;
        }
        return ChoiceKind::read_value(value, report);
    }
    json::value write_value(const std::string& text) const override {
        if (text == when_true_ || text == when_false_) {
            return text == when_true_;
        }
        return json::value(text);
    }
    const char* wanted() const override { return "a boolean or a string"; }

  private:
    std::string when_true_;
    std::string when_false_;
};

}  // namespace

FieldKindPtr make_text(Member<std::string> member, TextRange range) {
    return std::make_shared<TextKind>(std::move(member), range);
}
FieldKindPtr make_path(Member<std::string> member, std::function<std::string*(JobSpec&)> text, PathUse use,
                       const char* what, bool may_be_empty) {
    return std::make_shared<PathKind>(std::move(member), std::move(text), use, what, may_be_empty);
}
FieldKindPtr make_urls(Member<std::vector<std::string>> member, std::size_t max_count) {
    return std::make_shared<UrlsKind>(std::move(member), max_count);
}
FieldKindPtr make_url(Member<std::string> member) {
    return std::make_shared<UrlKind>(std::move(member));
}
FieldKindPtr make_choice(Member<std::string> member, std::vector<std::string> names) {
    return std::make_shared<ChoiceKind>(std::move(member), std::move(names));
}
FieldKindPtr make_choice_or_boolean(Member<std::string> member, std::vector<std::string> names, std::string when_true,
                                    std::string when_false) {
    return std::make_shared<ChoiceOrBooleanKind>(std::move(member), std::move(names), std::move(when_true),
                                                 std::move(when_false));
}

}  // namespace distilld::api
