#pragma once

#include <memory>

#include "server/supervisor/launcher.hpp"
#include "server/supervisor/slurm/slurm_commands.hpp"

namespace distilld::slurm {

/// Lists the machines of Slurm. It makes no workers yet: make() throws.
[[nodiscard]] std::unique_ptr<Launcher> make_slurm_launcher(Commands commands);

}  // namespace distilld::slurm
