#pragma once

#include <array>

#include "base/enum_names.hpp"

namespace distilld {

/// What each slot of the service has to itself.
enum class SlotsBy {
    cores,    ///< its own cores
    devices,  ///< its own GPU, and its own cores
    none,     ///< nothing: the jobs share the machine
};
inline constexpr std::array kSlotsByNames{EnumName<SlotsBy>{"cores", SlotsBy::cores},
                                          EnumName<SlotsBy>{"devices", SlotsBy::devices},
                                          EnumName<SlotsBy>{"none", SlotsBy::none}};

}  // namespace distilld
