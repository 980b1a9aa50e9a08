#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "backend/cpu/pool.h"

namespace octavo {
namespace {

// CPUs that a cgroup folder's quota is worth, rounded up; 0: no limit there.
int quota_of(const std::string& folder) {
  long long quota = 0, period = 0;
  if (std::ifstream v2(folder + "/cpu.max"); v2 >> quota >> period) {  // "max" is not a number: no limit
  } else if (std::ifstream q(folder + "/cpu.cfs_quota_us"), p(folder + "/cpu.cfs_period_us");
             q >> quota && p >> period) {
  }
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int>((quota + period - 1) / period);
}

// The tightest quota from this process's cgroup up to the root.
int cgroup_quota() {
  int best = 0;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string root = "/sys/fs/cgroup";
    if (!controllers.empty()) {
      if (("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
      root += "/cpu";
    }
    for (std::string path = line.substr(second + 1);; path.resize(path.find_last_of('/'))) {
      if (!path.empty() && path.back() == '/') path.pop_back();
      const int quota = quota_of(root + path);
      if (quota > 0 && (best == 0 || quota < best)) best = quota;
      if (path.find('/') == std::string::npos) break;
    }
  }
  return best;
}

}  // namespace

int allowed_cpus() {
  cpu_set_t set;
  int cpus = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = std::max(1, CPU_COUNT(&set));
  const int quota = cgroup_quota();
  return quota > 0 ? std::min(cpus, quota) : cpus;
}

}  // namespace octavo
