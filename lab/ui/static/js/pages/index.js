// The pages, in the order of the rail. A page is a file here that offers
//
//   export const page = {id, key, title, icon, Component, commands, overlay?, rail?}
//
// id: its name in the address (`#/id/…`); key: the letter after `g`, or the key itself of an overlay; icon: the `d` of a path in
// a box of 24 × 24, drawn as a line; Component: a function of no arguments; commands: see commands.js (they are there while the
// page is shown); overlay: it lies over any page and gets `close`; rail: false leaves it out of the rail.
import {page as cluster} from 'keplab/pages/cluster.js';
import {page as difference} from 'keplab/pages/difference.js';
import {page as edit} from 'keplab/pages/edit.js';
import {page as experiments} from 'keplab/pages/experiments.js';
import {page as explain} from 'keplab/pages/explain.js';
import {page as mesh} from 'keplab/pages/mesh.js';
import {page as objects} from 'keplab/pages/objects.js';
import {page as queue} from 'keplab/pages/queue.js';
import {page as timeline} from 'keplab/pages/timeline.js';
import {page as trace} from 'keplab/pages/trace.js';

export const pages = [mesh, cluster, queue, trace, objects, experiments, difference, timeline, explain, edit];
