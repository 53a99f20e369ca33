#include "server/worker/eval/printed_figures.hpp"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <utility>

#include "base/ascii.hpp"
#include "base/json_text.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxDepth = 16;
constexpr std::size_t kShownName = 40;  // bytes
constexpr const char* kBlank = " \t\r\n";

/// One part of a name, which no reader of "/" misunderstands.
std::string part_of(std::string_view key) {
    std::string part(key);
    for (char& letter : part) {
        const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                           (letter >= '0' && letter <= '9') ||
                           std::string_view("._:-").find(letter) != std::string::npos;
        letter = plain ? letter : '_';
    }
    return part.empty() || part == "." || part == ".." ? "_" : part;
}

class Figures {
  public:
    void add(const json::object& object, const std::string& prefix) {
        for (const auto& [key, value] : object) {
            if (value.is_object()) {
                add(value.get_object(), prefix + part_of(key) + "/");
            } else if (value.is_number()) {
                add(prefix + part_of(key), value.to_number<double>());
            }
        }
    }

    [[nodiscard]] Result<std::map<std::string, double>> take() {
        if (!problem_.empty()) {
            return invalid_input(problem_);
        }
        if (count_ == 0) {
            return invalid_input("the JSON object that it printed has no numbers");
        }
        if (count_ > kMaxFigures) {
            return invalid_input("it printed " + std::to_string(count_) + " numbers: print at most " +
                                 std::to_string(kMaxFigures));
        }
        return std::move(figures_);
    }

  private:
    void add(const std::string& name, double value) {
        ++count_;
        if (name.size() > kMaxFigureName) {
            blame(name.substr(0, kShownName) + "…",
                  "is a name of more than " + std::to_string(kMaxFigureName) + " bytes");
        } else if (!std::isfinite(value)) {
            blame(name, "is not finite");
        } else if (count_ <= kMaxFigures && !figures_.emplace(name, value).second) {
            blame(name, "is there twice (only letters, digits and . _ : - count)");
        }
    }
    void blame(const std::string& name, const std::string& why) {
        if (problem_.empty()) {
            problem_ = "of the numbers that it printed, " + name + " " + why;
        }
    }

    std::map<std::string, double> figures_;
    std::size_t count_ = 0;
    std::string problem_;  ///< the first
};

}  // namespace

Result<std::map<std::string, double>> read_figures(std::string_view printed) {
    const std::string_view text = trimmed(printed, kBlank);
    if (text.empty()) {
        return invalid_input("it printed nothing on stdout: the last line must be a JSON object of numbers");
    }
    auto parsed = parse_json_text(text, kMaxDepth);
    std::string reason = parsed ? std::string() : parsed.error().reason;
    if (const std::size_t end = text.find_last_of('\n'); !parsed && end != std::string_view::npos) {
        parsed = parse_json_text(text.substr(end + 1), kMaxDepth);
        reason = parsed ? std::string() : parsed.error().reason;
    }
    if (!parsed || !parsed->is_object()) {
        return invalid_input("the last line that it printed on stdout is not a JSON object" +
                             (reason.empty() ? "" : " (" + reason + ")"));
    }
    Figures figures;
    figures.add(parsed->get_object(), "");
    return figures.take();
}

}  // namespace distilld
