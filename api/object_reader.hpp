#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/spec_names.hpp"
#include "api/violation.hpp"

namespace distilld::api {

enum class Ends { closed, open_low, open_high };  ///< which end of a range is outside of it

/// A field and the object it belongs into ("" = the document).
struct FieldPlace {
    const char* section;
    const char* field;
};

/// Reads the fields of one object, notes what is wrong, and in the end refuses fields nobody asked for. The readers of
/// a field give true when it is there and good; otherwise the target keeps its value.
class ObjectReader {
  public:
    /// `pointer` names the object in violations; `object` and `out` outlive the reader.
    ObjectReader(const boost::json::object& object, std::string pointer, std::vector<Violation>& out);

    /// The JSON pointer of a field.
    [[nodiscard]] std::string at(std::string_view name) const;

    void violate(std::string_view name, std::string code, std::string detail);
    void wrong_type(std::string_view name, std::string_view wanted, const boost::json::value& got);
    void required(const char* name, std::string_view what);

    [[nodiscard]] const boost::json::value* find(const char* name);

    /// The object under `name`, or nothing (with a violation when it is something else).
    const boost::json::object* object(const char* name);

    /// The object under `name`, or nothing (with a violation that says what it should be).
    const boost::json::object* required_object(const char* name, std::string_view what);

    bool boolean(const char* name, bool& target);

    template <class Integer>
    bool integer(const char* name, Integer& target, std::uint64_t least, std::uint64_t most) {
        const auto* value = find(name);
        return value != nullptr && store(whole_number(name, *value, "a whole number", least, most), target);
    }

    /// A whole number, or the text "auto", which sets `automatic` and leaves `target` alone.
    template <class Integer>
    bool integer_or_auto(const char* name, bool& automatic, Integer& target, std::uint64_t least, std::uint64_t most) {
        const auto* value = find(name);
        if (value == nullptr) {
            return false;
        }
        if (value->is_string()) {
            return auto_text(name, *value, automatic);
        }
        return store(whole_number(name, *value, "\"auto\" or a whole number", least, most), target);
    }

    bool number(const char* name, double& target, double least, double most, Ends ends = Ends::closed);

    /// A text without control characters. `may_be_empty`: "" stands for "none".
    bool text(const char* name, std::string& target, std::size_t longest, bool may_be_empty);

    template <class Enum, std::size_t N>
    bool one_of(const char* name, const std::array<EnumName<Enum>, N>& names, Enum& target) {
        std::vector<std::string> candidates;
        for (const auto& candidate : names) {
            candidates.emplace_back(candidate.text);
        }
        const auto index = index_of(name, candidates);
        if (index) {
            target = names[*index].value;
        }
        return index.has_value();
    }

    /// Refuses every field that no call above asked for; `places` are searched for where it may belong.
    void finish(std::span<const FieldPlace> places);

  private:
    template <class Integer>
    static bool store(std::optional<std::uint64_t> number, Integer& target) {
        if (number) {
            target = static_cast<Integer>(*number);
        }
        return number.has_value();
    }

    std::optional<std::uint64_t> whole_number(const char* name, const boost::json::value& value,
                                              std::string_view wanted, std::uint64_t least, std::uint64_t most);
    bool auto_text(const char* name, const boost::json::value& value, bool& automatic);
    std::optional<std::size_t> index_of(const char* name, const std::vector<std::string>& candidates);

    const boost::json::object& object_;
    std::string pointer_;
    std::vector<Violation>& out_;
    std::vector<std::string> known_;
};

}  // namespace distilld::api
