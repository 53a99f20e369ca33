#pragma once

#include <array>

#include "base/enum_names.hpp"

namespace distilld {

/// What a job wants the teacher to say of each position.
enum class TargetsChoice {
    automatic,  ///< top-k rows where top_k says how wide; else the fewest bytes that are exact
    topk,
    logits,
    hidden,  ///< hidden states; logits are computed beside the student, with the teacher's head
};

inline constexpr std::array kTargetsChoiceNames{
    EnumName<TargetsChoice>{"auto", TargetsChoice::automatic}, EnumName<TargetsChoice>{"topk", TargetsChoice::topk},
    EnumName<TargetsChoice>{"logits", TargetsChoice::logits}, EnumName<TargetsChoice>{"hidden", TargetsChoice::hidden}};

[[nodiscard]] constexpr const char* to_string(TargetsChoice value) noexcept {
    return name_of(kTargetsChoiceNames, value);
}

}  // namespace distilld
