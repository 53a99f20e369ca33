#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/tokenizer/pattern.hpp"

/// Reads components of a tokenizer.json. Errors name the component and quote it.
namespace distilld {

/// Ids of special tokens are smaller.
inline constexpr std::int64_t kMaxSpecialId = 1 << 24;

/// Reads a JSON file of a tokenizer's folder. Errors name the file.
[[nodiscard]] Result<boost::json::value> read_json_file(const std::filesystem::path& file);

/// The member, unless it is absent or null.
[[nodiscard]] const boost::json::value* member_of(const boost::json::object& object, std::string_view name);

/// component["type"]; empty if it is not an object or has none.
[[nodiscard]] std::string_view type_of(const boost::json::value& component);

/// "`component` … is not understood"
[[nodiscard]] Error not_understood(std::string_view component, const boost::json::value& value);

/// A member of the required type; `when_absent` replaces an absent or null one.
Result<bool> flag_of(const boost::json::value& component, std::string_view name, bool when_absent);
Result<std::string> text_of(const boost::json::value& component, std::string_view name);
Result<std::int64_t> number_of(const boost::json::value& component, std::string_view name, std::int64_t when_absent);

/// component["pattern"]: {"Regex": "…"} or {"String": "…"}, the string not empty.
Result<std::shared_ptr<const Pattern>> pattern_of(const boost::json::value& component);

/// component["pattern"] and component["content"], which replaces its matches.
struct Replacement {
    std::shared_ptr<const Pattern> pattern;
    std::string content;
};
Result<Replacement> replacement_of(const boost::json::value& component);

/// component["replacement"] of a Metaspace, U+2581 if absent; an empty one is an error.
Result<std::string> space_of(std::string_view kind, const boost::json::value& component);

/// One row of the table of a kind of component: the reader of one type.
template <class Made>
struct ComponentRow {
    std::string_view type;
    Result<Made> (*read)(const boost::json::value& component);
};

/// Reads a component with the row of its type; `kind` ("normalizer") names it in errors.
template <class Made>
Result<Made> read_component(std::string_view kind, std::span<const ComponentRow<Made>> rows,
                            const boost::json::value& component) {
    const std::string_view type = type_of(component);
    for (const ComponentRow<Made>& row : rows) {
        if (row.type == type) {
            return row.read(component);
        }
    }
    return not_understood(kind, component);
}

/// The components that a Sequence lists in its member `list`.
template <class Made>
Result<std::vector<Made>> read_listed(std::string_view kind, std::string_view list,
                                      Result<Made> (*read)(const boost::json::value& component),
                                      const boost::json::value& component) {
    const boost::json::value* listed = member_of(component.get_object(), list);
    if (listed == nullptr || !listed->is_array()) {
        return not_understood(kind, component);
    }
    std::vector<Made> all;
    for (const boost::json::value& one : listed->get_array()) {
        Result<Made> made = read(one);
        if (!made) {
            return made.error();
        }
        all.push_back(std::move(*made));
    }
    return all;
}

}  // namespace distilld
