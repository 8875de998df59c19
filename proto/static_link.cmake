# The planner has to run where Protobuf and Abseil are not installed: link their static archives where they exist.
#
# Distributions ship both kinds, and their CMake packages name the shared ones. The archives are not position-independent enough
# for a shared library, so only executables (planner, tests) may use these targets; what a training process loads uses neither.
set(Protobuf_USE_STATIC_LIBS ON)
find_package(Protobuf REQUIRED GLOBAL)
find_package(absl REQUIRED GLOBAL)

# Points an imported target at the archive next to its shared library, where there is one.
function(stalloc_prefer_archive target)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  foreach(configuration IN LISTS configurations)
    get_target_property(location ${target} IMPORTED_LOCATION_${configuration})
    string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${location}")
    if(NOT archive STREQUAL location AND EXISTS "${archive}")
      set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} "${archive}"
                                                 IMPORTED_SONAME_${configuration} "")
    endif()
  endforeach()
endfunction()

get_property(imported DIRECTORY PROPERTY IMPORTED_TARGETS)
foreach(target IN LISTS imported)
  if(target MATCHES "^absl::")
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "SHARED_LIBRARY")
      stalloc_prefer_archive(${target})
    endif()
  endif()
endforeach()
