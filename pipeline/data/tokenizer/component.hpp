#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "pipeline/data/tokenizer/pattern.hpp"

/// How the components of a tokenizer.json are read. Every error names the component and shows what stands there.
namespace distilld {

/// The member, unless it is absent or null.
[[nodiscard]] const boost::json::value* member_of(const boost::json::object& object, std::string_view name);

/// component["type"]; empty when it is no object, or has none.
[[nodiscard]] std::string_view type_of(const boost::json::value& component);

/// "`component` … is not understood"
[[nodiscard]] Error not_understood(std::string_view component, const boost::json::value& value);

/// A member that must be of its kind; `when_absent` stands for one that is absent or null.
Result<bool> flag_of(const boost::json::value& component, std::string_view name, bool when_absent);
Result<std::string> text_of(const boost::json::value& component, std::string_view name);
Result<std::int64_t> number_of(const boost::json::value& component, std::string_view name, std::int64_t when_absent);

/// component["pattern"]: {"Regex": "…"} or {"String": "…"}, the string not empty.
Result<std::shared_ptr<const Pattern>> pattern_of(const boost::json::value& component);

}  // namespace distilld
