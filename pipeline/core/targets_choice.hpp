#pragma once

#include <array>

#include "base/enum_names.hpp"

namespace distilld {

/// The answers that a job wants per position.
enum class TargetsChoice {
    automatic,  ///< top-k rows if top_k is set; otherwise the smallest exact form
    topk,
    logits,
    hidden,  ///< hidden states; logits are computed next to the student, with the teacher's head
};

inline constexpr std::array kTargetsChoiceNames{
    EnumName<TargetsChoice>{"auto", TargetsChoice::automatic}, EnumName<TargetsChoice>{"topk", TargetsChoice::topk},
    EnumName<TargetsChoice>{"logits", TargetsChoice::logits}, EnumName<TargetsChoice>{"hidden", TargetsChoice::hidden}};

[[nodiscard]] constexpr const char* to_string(TargetsChoice value) noexcept {
    return name_of(kTargetsChoiceNames, value);
}

}  // namespace distilld
