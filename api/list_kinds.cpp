#include <algorithm>
#include <boost/json/array.hpp>

#include "api/member_kind.hpp"
#include "api/text_checks.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

using Texts = std::vector<std::string>;

class TextsKind : public MemberKind<Texts> {
  public:
    TextsKind(Member<Texts> member, TextRange range, std::size_t max_count)
        : MemberKind(std::move(member)), range_(range), max_count_(max_count) {}

    json::object schema() const override {
        return {{"type", "array"}, {"maxItems", max_count_}, {"items", item_schema()}};
    }
    std::string values() const override {
        return "up to " + std::to_string(max_count_) + " texts of 1–" + std::to_string(range_.max_bytes) +
               " characters";
    }
    FieldShape shape() const override { return FieldShape::list_of_texts; }

  protected:
    std::optional<Texts> read_value(const json::value& value, const FieldReport& report) const override {
        if (!value.is_array()) {
            report.wrong_type("an array of strings", value);
            return std::nullopt;
        }
        const auto& array = value.get_array();
        if (array.size() > max_count_) {
            report.violate("out_of_range", "lists more than " + std::to_string(max_count_));
            return std::nullopt;
        }
        Texts texts;
        for (std::size_t i = 0; i < array.size(); ++i) {
            const auto pointer = std::string(report.pointer) + "/" + std::to_string(i);
            if (auto text = read_text(array[i], {pointer, report.violations})) {
                texts.push_back(*std::move(text));
            }
        }
        return texts.size() == array.size() ? std::optional(std::move(texts)) : std::nullopt;
    }

    [[nodiscard]] json::object item_schema() const {
        return {{"type", "string"}, {"minLength", 1}, {"maxLength", range_.max_bytes}};
    }

    [[nodiscard]] std::optional<std::string> read_text(const json::value& value, const FieldReport& report) const {
        if (!value.is_string()) {
            report.wrong_type("a string", value);
            return std::nullopt;
        }
        std::string text(value.get_string());
        if (text.empty()) {
            report.violate("invalid_value", "must not be empty");
        } else if (text.size() > range_.max_bytes) {
            report.violate("out_of_range", "is longer than " + std::to_string(range_.max_bytes) + " bytes");
        } else if (range_.may_break_lines ? has_odd_control_character(text) : has_control_character(text)) {
            report.violate("invalid_value", range_.may_break_lines
                                                ? "must not contain control characters but line feeds and tabs"
                                                : "must not contain control characters");
        } else {
            return text;
        }
        return std::nullopt;
    }

    [[nodiscard]] std::size_t max_count() const { return max_count_; }

  private:
    TextRange range_;
    std::size_t max_count_;
};

/// A single path stands without its list.
class PathsKind final : public TextsKind {
  public:
    PathsKind(Member<Texts> member, std::function<Texts*(JobSpec&)> texts, PathUse use, const char* what,
              std::size_t max_count)
        : TextsKind(std::move(member), {.max_bytes = kMaxPathBytes}, max_count),
          texts_(std::move(texts)),
          use_(use),
          what_(what) {}

    json::object schema() const override { return {{"oneOf", json::array{item_schema(), TextsKind::schema()}}}; }
    std::string values() const override {
        return std::string(what_) + ", or a list of up to " + std::to_string(max_count());
    }
    std::vector<std::string*> paths(JobSpec& spec) const override {
        std::vector<std::string*> found;
        if (Texts* texts = texts_(spec)) {
            std::ranges::transform(*texts, std::back_inserter(found), [](std::string& text) { return &text; });
        }
        return found;
    }
    PathUse path_use() const override { return use_; }

  protected:
    std::optional<Texts> read_value(const json::value& value, const FieldReport& report) const override {
        if (!value.is_string()) {
            return TextsKind::read_value(value, report);
        }
        auto text = read_text(value, report);
        return text ? std::optional(Texts{*std::move(text)}) : std::nullopt;
    }
    json::value write_value(const Texts& texts) const override {
        return texts.size() == 1 ? json::value(texts.front()) : MemberKind::write_value(texts);
    }

  private:
    std::function<Texts*(JobSpec&)> texts_;
    PathUse use_;
    const char* what_;
};

}  // namespace

FieldKindPtr make_texts(Member<Texts> member, TextRange range, std::size_t max_count) {
    return std::make_shared<TextsKind>(std::move(member), range, max_count);
}
FieldKindPtr make_paths(Member<Texts> member, std::function<Texts*(JobSpec&)> texts, PathUse use, const char* what,
                        std::size_t max_count) {
    return std::make_shared<PathsKind>(std::move(member), std::move(texts), use, what, max_count);
}

}  // namespace distilld::api
