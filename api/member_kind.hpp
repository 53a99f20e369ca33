#pragma once

#include <boost/json/value.hpp>
#include <boost/json/value_from.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "api/field_kinds.hpp"

namespace distilld::api {

/// Reading, writing and default of every kind that keeps a Value in a member.
template <class Value>
class MemberKind : public FieldKind {
  public:
    explicit MemberKind(Member<Value> member) : member_(std::move(member)) {}

    bool read(const boost::json::value& value, JobSpec& spec, const FieldReport& report) const override {
        const auto good = read_value(value, report);
        if (!good) {
            return false;
        }
        member_.set(spec, *good);
        return true;
    }
    std::optional<boost::json::value> write(const JobSpec& spec) const override { return written(member_.get(spec)); }
    std::optional<boost::json::value> initial() const override { return written(member_.initial); }

  protected:
    /// The value when it is good.
    [[nodiscard]] virtual std::optional<Value> read_value(const boost::json::value& value,
                                                          const FieldReport& report) const = 0;
    [[nodiscard]] virtual boost::json::value write_value(const Value& value) const {
        return boost::json::value_from(value);
    }

  private:
    [[nodiscard]] std::optional<boost::json::value> written(const std::optional<Value>& value) const {
        if constexpr (std::is_same_v<Value, std::string>) {
            // Where a field has another default, the empty text is a value like others.
            if (value && value->empty() && (!member_.initial || member_.initial->empty())) {
                return std::nullopt;
            }
        }
        if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
            if (value && value->empty()) {
                return std::nullopt;
            }
        }
        return value ? std::optional<boost::json::value>(write_value(*value)) : std::nullopt;
    }

    Member<Value> member_;
};

/// A text value as the documentation shows it.
[[nodiscard]] inline std::string in_code(const std::string& text) {
    return "`\"" + text + "\"`";
}

}  // namespace distilld::api
